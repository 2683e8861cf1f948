//! The law for every report: any chunks, merged in any grouping, give the tables of one chunk.
//!
//! Each report of the list has its trials, so a new analysis is tested without further lines, and so have the analyses that
//! no report lists; `cargo test -p hodo-analyses --test
//! law -- NAME` runs those of one report.

mod counts;
mod cut;
mod events;
mod flow;

#[path = "../traces/mod.rs"]
mod traces;

use std::process::ExitCode;

use hodo_analyses::{
    critical_path::{FunctionsOfStretches, ThreadStretch},
    divergence::{Digests, InstructionCollector},
    latency,
    loops::{BlockCounts, CountedExecutions},
};
use hodo_clock::Nanos;
use hodo_model::{
    AnyAnalysis, AnyPartial, CountInterest, Every, FastFlow, FinishContext, FlowInterest, FlowLoop,
    FunctionId, Heading, Interest, Intervals, Item, LaneValue, Made, Marker, Nesting, Parameters, Period,
    Report, Selection, Start, Table, TableBuilder, ThreadState,
    kernel::{Chosen, Threads},
};
use libtest_mimic::{Arguments, Failed, Trial};
use proptest::prelude::ProptestConfig;

use flow::FlowLaw;
use traces::{config, tables};

/// Checks control flow without a decoder.
struct Law;

impl FlowLoop for Law {
    type Analysis = dyn FlowLaw;

    fn compile(analysis: impl FastFlow) -> Box<dyn FlowLaw> {
        Box::new(analysis)
    }

    fn analysis(of: &dyn FlowLaw) -> &dyn AnyAnalysis {
        of
    }
}

/// All parameters that change which analysis a report makes: its views, cheaper analyses, samples.
fn parameters(report: &Report<Law>) -> Vec<Parameters> {
    let about = report.description();
    let views = if about.views.is_empty() { &[""] } else { about.views };
    let samples =
        [Every::Nanoseconds(1), Every::Nanoseconds(7), Every::Instructions(1), Every::Instructions(5)];
    let every = samples.map(Some).into_iter().filter(|_| about.takes.every).chain([None]);
    let mut all = Vec::new();
    for every in every {
        for (view, alone) in views.iter().flat_map(|&view| [(view, false), (view, true)]) {
            let selection = Selection { view: view.to_owned(), ..Selection::default() };
            let parameters = Parameters { selection, every, alone, ..Parameters::default() };
            let questions = if about.takes.intervals { questions() } else { vec![None] };
            all.extend(questions.into_iter().map(|intervals| Parameters { intervals, ..parameters.clone() }));
        }
    }
    all
}

/// Questions about intervals of control flow.
fn questions() -> Vec<Option<Intervals>> {
    let marker = |text: &str| match &latency::parse(text).unwrap()[0] {
        latency::Named::Instructions(sequence) => Marker::Instructions(sequence.clone()),
        other => panic!("{other:?}"),
    };
    let between =
        |from: Vec<Marker>, to: Vec<Marker>, nesting| Some(Intervals::Markers { from, to, nesting });
    let function = FunctionId { module: 1, index: 2 };
    let places = vec![Marker::Address(12), Marker::Entry(function), Marker::Code { module: 1, offset: 33 }];
    vec![
        None,
        Some(Intervals::Function(function)),
        Some(Intervals::SystemCalls { name: "f".to_owned(), functions: vec![function] }),
        between(vec![marker("nop; nop")], vec![marker("pop; clc; stc")], Nesting::Nested),
        between(vec![marker("push")], vec![marker("nop"), marker("clc; nop; push; pop")], Nesting::First),
        between(places, vec![Marker::Exit(function), marker("nop")], Nesting::Last),
        Some(Intervals::Period(Period::default())),
        Some(Intervals::Syscalls("read".to_owned())),
        Some(Intervals::Interrupts(1)),
        Some(Intervals::State(ThreadState::Running)),
        Some(Intervals::State(ThreadState::Blocked)),
        between(vec![marker("stc; nop")], vec![marker("stc; nop")], Nesting::Nested),
    ]
}

/// An analysis of a report, the parameters that it is made for, and its views.
type Each = (Made<Law>, Parameters, Vec<&'static str>);

/// Every distinct analysis that a report makes.
fn analyses(report: &'static Report<Law>) -> Vec<Each> {
    let mut all: Vec<Each> = Vec::new();
    for parameters in parameters(report) {
        let made = report.make(&parameters);
        let views = report.description.views.iter().copied();
        let view = views.into_iter().find(|view| *view == parameters.view()).unwrap_or_default();
        let is_same = |(known, first, _): &&mut Each| {
            known.analysis().partial() == made.analysis().partial()
                && first.every == parameters.every
                && first.intervals == parameters.intervals
        };
        match all.iter_mut().find(is_same) {
            Some((.., views)) if views.contains(&view) => {}
            Some((.., views)) => views.push(view),
            None => all.push((made, parameters, vec![view])),
        }
    }
    all
}

/// Checks that tables are the same for every cut.
fn any_tasks_in_any_grouping_give_the_table_of_one(all: Vec<Each>) -> Vec<String> {
    let holds = |(made, _, views): &Each| {
        let interest = made.analysis().interest();
        assert_eq!(
            made.flow().is_some(),
            interest.flow != FlowInterest::None,
            "Made::of_flow is for control flow"
        );
        match (made, interest.counts) {
            (Made::Flow(analysis), _) => flow::holds_always(&**analysis, 120),
            (Made::Events(analysis), CountInterest::None) => events::holds_always(&**analysis, views, 200),
            (Made::Events(analysis), _) => counts::holds_always(&**analysis, views, config(200)),
        }
    };
    let broken = |each: Each| Some(format!("{:?} {:?}: {}", each.2, each.1.every, holds(&each).err()?));
    all.into_iter().filter_map(broken).collect()
}

/// How a merge is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// It swaps its neighbours.
    Swapped,
    /// It drops the later one.
    Forgetful,
}

/// An analysis with a broken merge.
struct WithBroken<'a>(&'a dyn AnyAnalysis, Broken);

impl AnyAnalysis for WithBroken<'_> {
    fn interest(&self) -> Interest<'_> {
        self.0.interest()
    }

    fn begin(&self, start: &Start<'_>) -> AnyPartial {
        self.0.begin(start)
    }

    fn fold(&self, partial: &mut AnyPartial, events: Chosen<'_>) {
        self.0.fold(partial, events);
    }

    fn fold_item(&self, partial: &mut AnyPartial, item: Item<'_>) {
        self.0.fold_item(partial, item);
    }

    fn merge(&self, earlier: AnyPartial, later: AnyPartial, threads: &Threads) -> AnyPartial {
        match self.1 {
            Broken::Swapped => self.0.merge(later, earlier, threads),
            Broken::Forgetful => earlier,
        }
    }

    fn is_commutative(&self) -> bool {
        self.0.is_commutative()
    }

    fn finish(&self, partials: Vec<AnyPartial>, context: &FinishContext<'_>) -> Table {
        self.0.finish(partials, context)
    }

    fn heading(&self) -> Option<Heading> {
        None
    }

    fn settle(&self, _: &mut AnyPartial, _: &FinishContext<'_>, _: &mut TableBuilder) {}

    fn partial(&self) -> std::any::TypeId {
        self.0.partial()
    }

    fn pack(&self, partial: &AnyPartial) -> Vec<u8> {
        self.0.pack(partial)
    }

    fn unpack(&self, bytes: &[u8]) -> Option<AnyPartial> {
        self.0.unpack(bytes)
    }
}

/// Checks that the law catches broken merges.
fn a_broken_merge_is_caught(all: Vec<Each>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (made, parameters, views) in all {
        for how in [Broken::Swapped, Broken::Forgetful] {
            let broken = WithBroken(made.analysis(), how);
            let is_caught = match (&made, broken.interest().counts) {
                (Made::Flow(_), _) => flow::is_caught(&broken),
                (Made::Events(_), CountInterest::None) => events::is_caught(&broken, &views),
                (Made::Events(_), _) => {
                    let config = ProptestConfig { cases: 200, max_shrink_iters: 0, ..config(200) };
                    counts::holds_always(&broken, &views, config).is_err()
                }
            };
            if is_caught == (how == Broken::Swapped && broken.is_commutative()) {
                wrong.push(format!("{views:?} {:?} {how:?}", parameters.every));
            }
        }
    }
    wrong
}

/// A name of an analysis, and a function that makes it.
type Unlisted = (&'static str, fn() -> Made<Law>);

/// The analyses that no report lists.
fn unlisted() -> [Unlisted; 4] {
    [
        ("executed", || {
            let stretch = |(begin, end)| ThreadStretch { begin: Nanos(begin), end: Nanos(end), tid: 7 };
            Made::of_flow(FunctionsOfStretches::new([(0, 3), (5, 20), (21, 1000)].map(stretch).into()))
        }),
        ("digests", || Made::of_flow(Digests { wanted: 3..1000, block: 4, modules: vec![5, 6] })),
        ("block counts", || {
            let of = |index, executions| CountedExecutions {
                function: FunctionId { module: 1, index },
                executions,
            };
            let of = vec![of(0, vec![0..5, 9..400]), of(1, vec![2..30, 31..1000])];
            Made::of_flow(BlockCounts { of })
        }),
        ("steps", || Made::of_flow(InstructionCollector { first: 3, wanted: 7..1000, modules: vec![5, 6] })),
    ]
}

/// The analyses of the same table, where a report has a cheaper one: the usual, the cheaper, and the selection.
fn cheaper(report: &'static Report<Law>) -> Vec<(Made<Law>, Made<Law>, Selection)> {
    let one = |tid| Selection { tids: vec![tid], ..Selection::default() };
    let choices = [Selection::default(), one(1), Selection { cpus: vec![1], ..Selection::default() }];
    let mut all = Vec::new();
    for (selection, view) in
        choices.iter().flat_map(|choice| report.description.views.iter().map(move |view| (choice, view)))
    {
        let selection = Selection { view: (*view).to_owned(), ..selection.clone() };
        let make =
            |alone| report.make(&Parameters { selection: selection.clone(), alone, ..Parameters::default() });
        let (usual, alone) = (make(false), make(true));
        if usual.analysis().partial() != alone.analysis().partial() {
            all.push((usual, alone, selection));
        }
    }
    all
}

/// Checks that a cheaper analysis makes the same table.
fn alone_the_table_is_the_same(report: &'static Report<Law>) -> Vec<String> {
    let same = |(usual, alone, selection): &(Made<Law>, Made<Law>, Selection)| {
        events::are_same(alone.analysis(), usual.analysis(), selection)
    };
    cheaper(report).iter().filter_map(|each| same(each).err()).collect()
}

/// Returns the path of lanes with values, without the names of columns. Links have paths of other lanes.
fn row(report: &Report<Law>) -> Option<Vec<Vec<&'static str>>> {
    let lanes = report.description.lanes.filter(|lanes| matches!(lanes.value, LaneValue::Column(_)))?;
    Some(lanes.path.iter().map(|part| part.split(['{', '}']).step_by(2).collect()).collect())
}

/// Checks that lanes are of a view whose rows settle and have a time, that they name its columns, and that they share a row
/// of a timeline with no other values.
fn lanes_are_of_columns(report: &'static Report<Law>) -> Vec<String> {
    let Some(lanes) = report.description.lanes else { return Vec::new() };
    let selection = Selection { view: lanes.view.to_owned(), ..Selection::default() };
    let made = report.make(&Parameters { selection, alone: true, ..Parameters::default() });
    let Some(heading) = made.analysis().heading().filter(|_| report.description.views.contains(&lanes.view))
    else {
        return vec![format!("the rows of the view {} do not settle", lanes.view)];
    };
    let is_column = |name: &str| heading.columns.iter().any(|column| column.name == name);
    let value = match &lanes.value {
        LaneValue::Column(name) => std::slice::from_ref(name),
        LaneValue::Lane(names) => names,
    };
    let in_path =
        lanes.path.iter().flat_map(|part| part.split('{').skip(1)).filter_map(|rest| rest.split('}').next());
    let named = lanes.lane.iter().chain(value).copied().chain(in_path);
    let mut wrong: Vec<String> =
        named.filter(|name| !is_column(name)).map(|name| format!("{name} is no column")).collect();
    if !is_column("begin_ns") && !is_column("at_ns") {
        wrong.push("no column is a time".to_owned());
    }
    let all = hodo_analyses::reports::<Law>().iter();
    let others = all.filter(|other| other.description.name != report.description.name);
    for other in others.filter(|other| row(other).is_some() && row(other) == row(report)) {
        wrong.push(format!("the lanes of {} have the same path", other.description.name));
    }
    wrong
}

/// A test that passes if a law finds nothing wrong.
fn trial(name: &str, law: &str, wrong: impl FnOnce() -> Vec<String> + Send + 'static) -> Trial {
    Trial::test(format!("{name}::{law}"), || match wrong() {
        wrong if wrong.is_empty() => Ok(()),
        wrong => Err(Failed::from(wrong.join("\n\n"))),
    })
}

/// The tests of the law for some analyses.
fn of_law(name: &str, all: impl Fn() -> Vec<Each> + Copy + Send + 'static) -> [Trial; 2] {
    [
        trial(name, "any_tasks_in_any_grouping_give_the_table_of_one", move || {
            any_tasks_in_any_grouping_give_the_table_of_one(all())
        }),
        trial(name, "a_broken_merge_is_caught", move || a_broken_merge_is_caught(all())),
    ]
}

fn main() -> ExitCode {
    let mut trials = Vec::new();
    for report in hodo_analyses::reports::<Law>() {
        let name = report.description.name;
        trials.extend(of_law(name, || analyses(report)));
        if report.description.lanes.is_some() {
            trials.push(trial(name, "lanes_are_of_columns", || lanes_are_of_columns(report)));
        }
        if !cheaper(report).is_empty() {
            trials.push(trial(name, "alone_the_table_is_the_same", || alone_the_table_is_the_same(report)));
        }
    }
    for (name, made) in unlisted() {
        trials.extend(of_law(name, move || vec![(made(), Parameters::default(), vec![""])]));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
