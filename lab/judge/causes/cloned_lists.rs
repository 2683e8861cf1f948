// case: a list that is cloned to look at it
// finds: largest|clone,to_vec,memcpy,memmove
// Each question clones all of a list.

#[inline(never)]
fn largest(numbers: &[u64], until: usize) -> u64 {
    let mut own = std::hint::black_box(numbers.to_vec());
    own.truncate(until % 4 + 1);
    own.into_iter().max().unwrap_or_default()
}

fn main() {
    let numbers: Vec<u64> = (0..20_000).collect();
    let sum: u64 = (0..3000).map(|until| largest(&numbers, until)).sum();
    println!("{sum}");
}
