//! The law for every report: any chunks, merged in any grouping, give the tables of one chunk.
//!
//! Each report of the list has its trials, so a new analysis is tested without further lines. So have the analyses that no
//! report lists. `cargo test -p hodo-analyses --test law -- NAME` runs the trials of one report.

mod counts;
mod cut;
mod events;
mod flow;
mod paths;

#[path = "../traces/mod.rs"]
mod traces;

use std::process::ExitCode;

use hodo_analyses::{
    critical_path::{FunctionsOfStretches, ThreadStretch},
    divergence::{Digests, InstructionCollector},
    latency,
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
use traces::{config, parts, tables};

/// Checks control flow without a decoder.
struct Law;

impl FlowLoop for Law {
    type Analysis = dyn FlowLaw;

    fn compile(analysis: impl FastFlow) -> Box<dyn FlowLaw> {
        Box::new(analysis)
    }

    fn analysis(analysis: &dyn FlowLaw) -> &dyn AnyAnalysis {
        analysis
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
    let points = vec![Marker::Address(12), Marker::Entry(function), Marker::Code { module: 1, offset: 33 }];
    vec![
        None,
        Some(Intervals::Function(function)),
        Some(Intervals::SystemCalls { name: "f".to_owned(), functions: vec![function] }),
        between(vec![marker("nop; nop")], vec![marker("pop; clc; stc")], Nesting::Nested),
        between(vec![marker("push")], vec![marker("nop"), marker("clc; nop; push; pop")], Nesting::First),
        between(points, vec![Marker::Exit(function), marker("nop")], Nesting::Last),
        Some(Intervals::Period(Period::default())),
        Some(Intervals::Syscalls("read".to_owned())),
        Some(Intervals::Interrupts(1)),
        Some(Intervals::State(ThreadState::Running)),
        Some(Intervals::State(ThreadState::Blocked)),
        between(vec![marker("stc; nop")], vec![marker("stc; nop")], Nesting::Nested),
    ]
}

/// An analysis to test.
struct Case {
    made: Made<Law>,
    /// What it is made for.
    parameters: Parameters,
    /// The views that it makes.
    views: Vec<&'static str>,
}

/// Whether an analysis with times has a cheaper one without, of the same type.
fn is_untimed(parameters: &Parameters) -> bool {
    parameters.view() == "instructions"
}

/// Every distinct analysis that a report makes.
fn analyses(report: &'static Report<Law>) -> Vec<Case> {
    let mut all: Vec<Case> = Vec::new();
    for parameters in parameters(report) {
        let made = report.make(&parameters);
        let views = report.description.views.iter().copied();
        let view = views.into_iter().find(|view| *view == parameters.view()).unwrap_or_default();
        let is_same = |known: &&mut Case| {
            known.made.analysis().partial() == made.analysis().partial()
                && known.parameters.every == parameters.every
                && known.parameters.intervals == parameters.intervals
                && is_untimed(&known.parameters) == is_untimed(&parameters)
        };
        match all.iter_mut().find(is_same) {
            Some(known) if known.views.contains(&view) => {}
            Some(known) => known.views.push(view),
            None => all.push(Case { made, parameters, views: vec![view] }),
        }
    }
    all
}

/// Checks that tables are the same for every cut.
fn any_tasks_in_any_grouping_give_the_table_of_one(all: Vec<Case>) -> Vec<String> {
    let holds = |Case { made, views, .. }: &Case| {
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
    let mut broken = Vec::new();
    for case in all {
        if let Err(error) = holds(&case) {
            broken.push(format!("{:?} {:?}: {error}", case.views, case.parameters.every));
        }
    }
    broken
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

    fn finish_several(&self, traces: Vec<(Vec<AnyPartial>, FinishContext<'_>)>) -> Vec<Table> {
        traces.into_iter().map(|(partials, context)| self.finish(partials, &context)).collect()
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
fn a_broken_merge_is_caught(all: Vec<Case>) -> Vec<String> {
    let mut wrong = Vec::new();
    for Case { made, parameters, views } in all {
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
fn unlisted() -> [Unlisted; 3] {
    [
        ("executed", || {
            let stretch = |(begin, end)| ThreadStretch { begin: Nanos(begin), end: Nanos(end), tid: 7 };
            Made::of_flow(FunctionsOfStretches::new([(0, 3), (5, 20), (21, 1000)].map(stretch).into()))
        }),
        ("digests", || Made::of_flow(Digests { wanted: 3..1000, block: 4, modules: vec![5, 6] })),
        ("steps", || Made::of_flow(InstructionCollector { first: 3, wanted: 7..1000, modules: vec![5, 6] })),
    ]
}

/// Two analyses that make the same table.
struct Alternatives {
    usual: Made<Law>,
    /// It makes nothing else.
    cheaper: Made<Law>,
    selection: Selection,
}

/// The alternatives where a report has a cheaper analysis.
fn alternatives(report: &'static Report<Law>) -> Vec<Alternatives> {
    let thread = Selection { tids: vec![1], ..Selection::default() };
    let choices = [Selection::default(), thread, Selection { cpus: vec![1], ..Selection::default() }];
    let mut all = Vec::new();
    for (selection, view) in
        choices.iter().flat_map(|choice| report.description.views.iter().map(move |view| (choice, view)))
    {
        let selection = Selection { view: (*view).to_owned(), ..selection.clone() };
        let make =
            |alone| report.make(&Parameters { selection: selection.clone(), alone, ..Parameters::default() });
        let (alone, with_others) = (true, false);
        let (usual, cheaper) = (make(with_others), make(alone));
        if usual.analysis().partial() != cheaper.analysis().partial() {
            all.push(Alternatives { usual, cheaper, selection });
        }
    }
    all
}

/// Checks that a cheaper analysis makes the same table.
fn alone_the_table_is_the_same(report: &'static Report<Law>) -> Vec<String> {
    let same = |Alternatives { usual, cheaper, selection }: &Alternatives| {
        events::are_same(cheaper.analysis(), usual.analysis(), selection)
    };
    alternatives(report).iter().filter_map(|each| same(each).err()).collect()
}

/// Returns the path of lanes with values, without the names of columns. Links have paths of other lanes.
fn path_of_values(report: &Report<Law>) -> Option<Vec<Vec<&'static str>>> {
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
    for other in others
        .filter(|other| path_of_values(other).is_some() && path_of_values(other) == path_of_values(report))
    {
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
fn trials_of_law(name: &str, all: impl Fn() -> Vec<Case> + Copy + Send + 'static) -> [Trial; 2] {
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
        trials.extend(trials_of_law(name, || analyses(report)));
        if report.description.lanes.is_some() {
            trials.push(trial(name, "lanes_are_of_columns", || lanes_are_of_columns(report)));
        }
        if !alternatives(report).is_empty() {
            trials.push(trial(name, "alone_the_table_is_the_same", || alone_the_table_is_the_same(report)));
        }
    }
    for (name, made) in unlisted() {
        trials.extend(trials_of_law(name, move || {
            vec![Case { made: made(), parameters: Parameters::default(), views: vec![""] }]
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
