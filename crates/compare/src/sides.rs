//! A pair of values: one for side A, the old one, and one for side B, the new one.

/// A value for each side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sides<T> {
    /// The value of the baseline.
    pub a: T,
    /// The value of the new side.
    pub b: T,
}

/// One of the sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    A,
    B,
}

impl<T> Sides<T> {
    /// Creates a pair.
    pub const fn new(a: T, b: T) -> Sides<T> {
        Sides { a, b }
    }

    /// Applies `make` to each side, A first.
    pub fn map<U>(self, mut make: impl FnMut(T) -> U) -> Sides<U> {
        Sides { a: make(self.a), b: make(self.b) }
    }

    /// Borrows each side.
    pub fn each(&self) -> Sides<&T> {
        Sides { a: &self.a, b: &self.b }
    }

    /// Returns the value of a side.
    pub(crate) fn of(&mut self, side: Side) -> &mut T {
        match side {
            Side::A => &mut self.a,
            Side::B => &mut self.b,
        }
    }
}
