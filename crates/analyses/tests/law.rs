//! The law: any cutting into chunks, any grouping of merges, gives the result of one chunk.

use hodo_analyses::profile::{Profile, Report};
use hodo_clock::Nanos;
use hodo_trace::{Analysis, Arrival, FunctionId, Names, Place, Seen, Table};
use proptest::prelude::*;

struct Numbers;

impl Names for Numbers {
    fn names(&self, function: FunctionId) -> (String, String) {
        (format!("f{}", function.index), "m".to_owned())
    }
}

fn profile() -> Profile<'static> {
    Profile { report: Report::Tree, names: &Numbers }
}

fn arrival() -> impl Strategy<Value = Arrival> {
    let place = prop_oneof![2 => Just(Place::Entry), 4 => Just(Place::Middle), 1 => Just(Place::Unknown)];
    (0u32..4, 0u64..3, place).prop_map(|(index, address, place)| Arrival {
        address: u64::from(index) * 10 + address,
        function: FunctionId { module: 1, index },
        place,
    })
}

/// What one block shows, or what happens between blocks.
fn step() -> impl Strategy<Value = Vec<Seen>> {
    let end = prop_oneof![
        4 => Just(None),
        4 => (0u64..4, 0u64..3).prop_map(|(f, a)| Some(Seen::Call { return_address: f * 10 + a })),
        4 => Just(Some(Seen::Return)),
        2 => Just(Some(Seen::IndirectJump)),
    ];
    let block = (arrival(), 1u64..9, end).prop_map(|(at, instructions, end)| {
        [Seen::Run { at, instructions }].into_iter().chain(end).collect()
    });
    prop_oneof![
        12 => block,
        1 => Just(vec![Seen::Leave]),
        1 => Just(vec![Seen::Enter]),
        1 => Just(vec![Seen::Gap]),
    ]
}

/// Segments begin with the clock and end with it, as a PSB+ tells it to both of its neighbours.
fn thread() -> impl Strategy<Value = Vec<Vec<Seen>>> {
    let segment = (prop::collection::vec((step(), 0u64..5, any::<bool>()), 0..30), 0u64..5);
    prop::collection::vec(segment, 1..8).prop_map(|segments| {
        let mut now = 0;
        let mut result = Vec::new();
        for (steps, tail) in segments {
            let mut segment = vec![Seen::Begin(Some(Nanos(now)))];
            for (step, later, tell) in steps {
                segment.extend(step);
                if tell {
                    now += later;
                    segment.push(Seen::Time(Nanos(now)));
                }
            }
            now += tail;
            segment.push(Seen::Time(Nanos(now)));
            segment.push(Seen::End);
            result.push(segment);
        }
        result
    })
}

type Partial = <Profile<'static> as Analysis>::Partial;

fn fold(segments: &[Vec<Seen>]) -> Partial {
    let mut partial = profile().unknown();
    segments.iter().flatten().for_each(|&seen| profile().fold(&mut partial, seen));
    // What travels to another process must be all that there is.
    serde_json::from_str(&serde_json::to_string(&partial).unwrap()).unwrap()
}

fn finish(partial: Partial) -> Table {
    profile().finish(vec![partial])
}

/// Merges neighbours in an order that `choices` picks.
fn merge_all(mut parts: Vec<Partial>, choices: &[usize]) -> Partial {
    let mut choices = choices.iter().cycle();
    while parts.len() > 1 {
        let at = choices.next().unwrap() % (parts.len() - 1);
        let later = parts.remove(at + 1);
        let earlier = std::mem::replace(&mut parts[at], profile().unknown());
        parts[at] = profile().merge(earlier, later);
    }
    parts.pop().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn any_chunks_in_any_grouping_give_the_result_of_one(
        thread in thread(),
        cuts in prop::collection::vec(any::<bool>(), 8),
        choices in prop::collection::vec(0usize..8, 1..8),
    ) {
        let mut parts = Vec::new();
        let mut begin = 0;
        for end in 1..=thread.len() {
            if end == thread.len() || cuts[end] {
                parts.push(fold(&thread[begin..end]));
                begin = end;
            }
        }
        prop_assert_eq!(finish(merge_all(parts, &choices)), finish(fold(&thread)));
    }
}
