// Threads that panic and are joined, allocations, and unwinding through frames with values to drop.
use std::{panic, thread};

struct Counted<'a>(&'a std::cell::Cell<u32>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

fn deep(depth: u32, dropped: &std::cell::Cell<u32>) -> u32 {
    let _counted = Counted(dropped);
    if depth == 0 {
        panic!("deep enough");
    }
    std::hint::black_box(deep(depth - 1, dropped) + 1)
}

fn main() {
    panic::set_hook(Box::new(|_| {}));
    let dropped = std::cell::Cell::new(0);
    for _ in 0..20 {
        let result = panic::catch_unwind(panic::AssertUnwindSafe(|| deep(100, &dropped)));
        assert!(result.is_err());
    }
    let threads: Vec<_> = (0..8u64)
        .map(|number| {
            thread::spawn(move || {
                let values: Vec<u64> = (0..10_000).map(|n| n * number % 97).collect();
                assert!(number != 3, "number three panics");
                values.iter().sum::<u64>()
            })
        })
        .collect();
    let sums: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap_or(0)).collect();
    println!("{} {sums:?}", dropped.get());
}
