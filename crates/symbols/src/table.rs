//! Assigns a function to every address.

use std::ops::Range;

use crate::names::Name;

/// The address range and name of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// First address.
    pub(crate) start: u64,
    /// The address after the last one; `start` if the size is unknown.
    pub(crate) end: u64,
    /// The name; empty if unknown.
    pub(crate) name: Name,
}

/// The functions of a module, and the address ranges that each owns.
///
/// A function may own several ranges, as another one may lie inside it. Addresses of no function belong to function
/// 0, the rest of the address space.
#[derive(Debug)]
pub(crate) struct Table {
    functions: Vec<Extent>,
    /// Range starts, ascending; the first is 0, and each range extends to the next.
    starts: Vec<u64>,
    /// The function of each range.
    owners: Vec<u32>,
}

impl Table {
    /// The table of an unknown module: function 0 owns every address.
    pub(crate) fn empty() -> Table {
        let rest = Extent { start: 0, end: u64::MAX, name: Name::default() };
        Table { functions: vec![rest], starts: vec![0], owners: vec![0] }
    }

    /// Assigns functions to all addresses of `areas`.
    ///
    /// The sources in order of precedence: `named` (the innermost if nested), `unwind` (likewise), padding (part of
    /// the preceding function), and gaps (each a function without a name). Nothing extends beyond the end of an area.
    /// A named function without a size extends to the next start of any source; inside another function it is only a
    /// label.
    ///
    /// All inputs are in ascending order; `areas` are disjoint, and starts of `named` are distinct.
    pub(crate) fn new(
        areas: &[Range<u64>],
        mut named: Vec<Extent>,
        unwind: &[Extent],
        is_padding: impl Fn(Range<u64>) -> bool,
    ) -> Table {
        let mut table = Table::empty();
        for area in areas {
            let named_inside = starting_inside(&named, area);
            let unwind = &unwind[starting_inside(unwind, area)];
            let named = &mut named[named_inside];
            settle_sizes(area, named, unwind);
            table.cover(area, named, unwind, &is_padding);
        }
        table.functions.shrink_to_fit();
        table.starts.shrink_to_fit();
        table.owners.shrink_to_fit();
        table
    }

    /// The index of the function that owns an address.
    pub(crate) fn owner(&self, address: u64) -> u32 {
        self.owner_range(address).0
    }

    /// The index of the function that owns an address, and the range around the address that it owns.
    pub(crate) fn owner_range(&self, address: u64) -> (u32, Range<u64>) {
        let next = self.starts.partition_point(|&start| start <= address);
        let end = self.starts.get(next).copied().unwrap_or(u64::MAX);
        (self.owners[next - 1], self.starts[next - 1]..end)
    }

    /// All functions, in order of address.
    pub(crate) fn functions(&self) -> &[Extent] {
        &self.functions
    }

    /// Assigns the addresses of one area, from one start or end to the next.
    fn cover(
        &mut self,
        area: &Range<u64>,
        named: &[Extent],
        unwind: &[Extent],
        is_padding: &impl Fn(Range<u64>) -> bool,
    ) {
        let points = points(area, named, unwind);
        let mut named = Layer::new(named);
        let mut unwind = Layer::new(unwind);
        let mut before = None;
        for (&start, &end) in points.iter().zip(points.iter().skip(1)) {
            let innermost = named.innermost(start).or_else(|| unwind.innermost(start));
            let owner = match (innermost, before) {
                (Some(open), _) => match open.owner {
                    Some(owner) => owner,
                    None => *open.owner.insert(self.add(Extent { start, ..open.extent })),
                },
                (None, Some(before)) if is_padding(start..end) => before,
                (None, _) => self.add(Extent { start, end, name: Name::default() }),
            };
            before = Some(owner);
            self.own_from(start, owner);
        }
        self.own_from(area.end, 0);
    }

    fn add(&mut self, function: Extent) -> u32 {
        let index = self.functions.len();
        self.functions.push(function);
        u32::try_from(index).expect("a file of less than 2^32 functions")
    }

    fn own_from(&mut self, start: u64, owner: u32) {
        match (self.starts.last(), self.owners.last_mut()) {
            (_, Some(last_owner)) if *last_owner == owner => {}
            (Some(&last_start), Some(last_owner)) if last_start == start => *last_owner = owner,
            _ => {
                self.starts.push(start);
                self.owners.push(owner);
            }
        }
    }
}

/// The indices of the ascending `extents` that start inside an area.
fn starting_inside(extents: &[Extent], area: &Range<u64>) -> Range<usize> {
    extents.partition_point(|e| e.start < area.start)..extents.partition_point(|e| e.start < area.end)
}

/// Gives every named function an end inside the area.
///
/// A function without a size (often assembly) takes that of an unwind range with the same start, or extends to the
/// next start.
fn settle_sizes(area: &Range<u64>, named: &mut [Extent], unwind: &[Extent]) {
    let mut unwind = unwind.iter().peekable();
    let mut sized_until = 0;
    for index in 0..named.len() {
        let next_start = named.get(index + 1).map_or(area.end, |next| next.start);
        let Extent { start, end, .. } = named[index];
        while unwind.peek().is_some_and(|u| u.start < start) {
            unwind.next();
        }
        if end > start {
            sized_until = sized_until.max(end);
        } else if start >= sized_until {
            named[index].end = match unwind.peek() {
                Some(u) if u.start == start => u.end.min(next_start),
                Some(u) => u.start.min(next_start),
                None => next_start,
            };
        }
        named[index].end = named[index].end.min(area.end);
    }
}

/// All starts and ends within the area, including its own, ascending.
fn points(area: &Range<u64>, named: &[Extent], unwind: &[Extent]) -> Vec<u64> {
    let ends = |e: &Extent| [e.start, e.end.min(area.end)];
    let mut points: Vec<u64> = named.iter().chain(unwind).flat_map(ends).collect();
    points.extend([area.start, area.end]);
    // The input is nearly two ascending runs, which this sort exploits.
    points.sort();
    points.dedup();
    points
}

/// The extents of one source that contain an address; the innermost is the last of `open`.
struct Layer<'a> {
    coming: std::iter::Peekable<std::slice::Iter<'a, Extent>>,
    open: Vec<Open>,
}

struct Open {
    extent: Extent,
    /// Its function, once it owns a range.
    owner: Option<u32>,
}

impl<'a> Layer<'a> {
    fn new(extents: &'a [Extent]) -> Layer<'a> {
        Layer { coming: extents.iter().peekable(), open: Vec::new() }
    }

    /// The innermost extent that contains an address. Addresses must ascend from call to call.
    fn innermost(&mut self, address: u64) -> Option<&mut Open> {
        while let Some(&extent) = self.coming.next_if(|e| e.start <= address) {
            self.open.push(Open { extent, owner: None });
        }
        while self.open.pop_if(|open| open.extent.end <= address).is_some() {}
        self.open.last_mut()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::names::Names;

    const END: u64 = 64;

    fn extents(name: Name) -> impl Strategy<Value = Vec<Extent>> {
        prop::collection::btree_map(0..END, 0..24_u64, 0..8).prop_map(move |starts| {
            starts.into_iter().map(|(start, size)| Extent { start, end: start + size, name }).collect()
        })
    }

    fn areas() -> impl Strategy<Value = Vec<Range<u64>>> {
        prop::collection::btree_set(0..END, 0..8).prop_map(|cuts| {
            let cuts: Vec<u64> = cuts.into_iter().collect();
            cuts.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect()
        })
    }

    /// The start of the innermost sized extent that contains an address, by linear search.
    fn innermost(extents: &[Extent], area: &Range<u64>, address: u64) -> Option<u64> {
        let inside =
            extents.iter().filter(|e| area.contains(&e.start) && (e.start..e.end).contains(&address));
        inside.map(|e| e.start).max()
    }

    proptest! {
        #[test]
        fn every_address_has_the_owner_that_a_linear_search_finds(
            areas in areas(),
            named in extents(Names::new(9).push([b"name", b""])),
            unwind in extents(Name::default()),
        ) {
            let named: Vec<Extent> = named.into_iter().filter(|e| e.end > e.start).collect();
            let table = Table::new(&areas, named.clone(), &unwind, |_| false);
            for address in 0..END + 32 {
                let function = table.functions()[table.owner(address) as usize];
                let Some(area) = areas.iter().find(|area| area.contains(&address)) else {
                    prop_assert_eq!(table.owner(address), 0);
                    continue;
                };
                prop_assert!(table.owner(address) > 0 && area.contains(&function.start));
                match innermost(&named, area, address) {
                    Some(start) => prop_assert_eq!((function.start, function.name.is_empty()), (start, false)),
                    None => prop_assert!(function.name.is_empty()),
                }
            }
            for address in 0..END + 32 {
                let (_, owner_range) = table.owner_range(address);
                prop_assert!(owner_range.contains(&address));
                for other in [owner_range.start, owner_range.end.min(END + 32) - 1] {
                    prop_assert_eq!(table.owner(other), table.owner(address));
                }
            }
            prop_assert!(table.starts.is_sorted_by(|a, b| a < b));
            prop_assert!(table.functions.is_sorted_by(|a, b| a.start <= b.start));
            for (index, function) in table.functions.iter().enumerate().skip(1) {
                prop_assert_eq!(table.owner(function.start) as usize, index);
            }
        }

        #[test]
        fn functions_without_a_size_reach_to_the_next_start(starts in prop::collection::btree_set(0..END, 1..8)) {
            let name = Names::new(9).push([b"name", b""]);
            let named = starts.iter().map(|&start| Extent { start, end: start, name }).collect();
            let table = Table::new(std::slice::from_ref(&(0..END)), named, &[], |_| false);
            for address in 0..END {
                let last = starts.range(..=address).next_back();
                prop_assert_eq!(table.functions()[table.owner(address) as usize].start, *last.unwrap_or(&0));
            }
        }
    }

    #[test]
    fn padding_belongs_to_the_function_before() {
        let name = Names::new(9).push([b"name", b""]);
        let named = vec![Extent { start: 4, end: 10, name }, Extent { start: 16, end: 20, name }];
        let table = Table::new(&[0..24, 24..28], named, &[], |range| range != (20..24));
        let owners: Vec<u32> = (0..30).step_by(2).map(|address| table.owner(address)).collect();
        // The padding at the start of an area has no preceding function, and the bytes at 20 are not padding.
        assert_eq!(owners, [1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 4, 4, 5, 5, 0]);
    }
}
