// case: a recursion that calculates the same again and again
// finds: paths
// Counts the ways through a grid without keeping what it knows.

#[inline(never)]
fn paths(right: u32, down: u32) -> u64 {
    if right == 0 || down == 0 {
        return 1;
    }
    paths(right - 1, down) + paths(right, down - 1)
}

fn main() {
    println!("{}", paths(std::hint::black_box(10), 9));
}
