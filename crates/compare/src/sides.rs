//! Two of a kind: of A, the old side, and of B, the new one.

/// What both sides have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sides<T> {
    /// Of the side that is compared with.
    pub a: T,
    /// Of the side that is looked at.
    pub b: T,
}

impl<T> Sides<T> {
    /// Of both sides.
    pub const fn new(a: T, b: T) -> Sides<T> {
        Sides { a, b }
    }

    /// What something makes of each side.
    pub fn map<U>(self, mut make: impl FnMut(T) -> U) -> Sides<U> {
        Sides { a: make(self.a), b: make(self.b) }
    }

    /// Each side, borrowed.
    pub fn each(&self) -> Sides<&T> {
        Sides { a: &self.a, b: &self.b }
    }

    /// One of them: A first.
    pub fn side(&mut self, is_b: bool) -> &mut T {
        if is_b { &mut self.b } else { &mut self.a }
    }
}
