//! Generics, closures, trait objects, a map with an iterator chain, and a panic that is caught.

use std::{collections::BTreeMap, panic};

trait Shape {
    fn area(&self) -> f64;
}

struct Square(f64);
struct Circle(f64);

impl Shape for Square {
    fn area(&self) -> f64 {
        self.0 * self.0
    }
}

impl Shape for Circle {
    fn area(&self) -> f64 {
        self.0 * self.0 * std::f64::consts::PI
    }
}

fn main() {
    let shapes = (0..20_000).map(|n| -> Box<dyn Shape> {
        if n % 3 == 0 { Box::new(Square(f64::from(n))) } else { Box::new(Circle(f64::from(n))) }
    });
    let mut by_digits = BTreeMap::<usize, u64>::new();
    for shape in shapes {
        let text = format!("{:.2}", shape.area());
        *by_digits.entry(text.len()).or_default() += text.bytes().map(u64::from).sum::<u64>();
    }
    panic::set_hook(Box::new(|_| {}));
    let caught = panic::catch_unwind(|| by_digits[&1_000]).is_err();
    println!("{} lengths, sum {}, caught {caught}", by_digits.len(), by_digits.values().sum::<u64>());
}
