//! The law for every report: any chunks, merged in any grouping, give the tables of one chunk.
//!
//! The tests iterate over the list of reports, so a new analysis is tested without further lines.

mod counts;
mod events;
mod flow;
mod tables;

use hodo_analyses::latency;
use hodo_model::{
    Analysis, AnyAnalysis, CountInterest, Every, FastFlow, FinishContext, FlowInterest, FunctionId, Interest,
    Intervals, Item, Maker, Marker, Nesting, Parameters, Period, Report, Selection, Start, Table,
    ThreadState, Visitor, kernel::Threads,
};
use proptest::prelude::ProptestConfig;

/// Runs this many cases, or as many as `PROPTEST_CASES` says if that is more; keeps no failures in a file, as the list of
/// reports is not a file.
fn config(cases: u32) -> ProptestConfig {
    let asked = ProptestConfig::default();
    ProptestConfig { failure_persistence: None, cases: asked.cases.max(cases), ..asked }
}

/// All parameters that change which analysis a report makes: its views, cheaper analyses, samples.
fn parameters<R: Report>(report: &R) -> Vec<Parameters> {
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

/// Checks that tables are the same for every cut.
struct Holds<'a>(&'a [&'a str]);

impl Maker for Holds<'_> {
    type Made = Result<(), String>;

    fn analysis<A: Analysis>(self, analysis: A) -> Self::Made {
        assert_eq!(analysis.interest().flow, FlowInterest::None, "control flow is for Maker::fast");
        match analysis.interest().counts {
            CountInterest::None => events::holds_always(&analysis, self.0, 400),
            _ => counts::holds_always(&analysis, self.0, 400),
        }
    }

    fn fast<A: FastFlow>(self, analysis: A) -> Self::Made {
        assert_ne!(analysis.interest().flow, FlowInterest::None, "events are for Maker::analysis");
        flow::holds_always(&analysis, 250)
    }
}

/// How a merge is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// It swaps its neighbours.
    Swapped,
    /// It drops the later one.
    Forgetful,
}

/// Checks that the law catches a broken merge.
struct IsCaught<'a>(Broken, &'a [&'a str]);

impl Maker for IsCaught<'_> {
    type Made = bool;

    fn analysis<A: Analysis>(self, analysis: A) -> bool {
        let broken = WithBroken(analysis, self.0);
        match Analysis::interest(&broken).counts {
            CountInterest::None => events::is_caught(&broken, self.1),
            _ => counts::holds_always(&broken, self.1, 400).is_err(),
        }
    }

    fn fast<A: FastFlow>(self, analysis: A) -> bool {
        flow::is_caught(&WithBroken(analysis, self.0))
    }
}

/// Checks whether an analysis is commutative.
struct IsCommutative;

impl Maker for IsCommutative {
    type Made = bool;

    fn analysis<A: Analysis>(self, analysis: A) -> bool {
        analysis.is_commutative()
    }

    fn fast<A: FastFlow>(self, analysis: A) -> bool {
        analysis.is_commutative()
    }
}

/// An analysis with a broken merge.
struct WithBroken<A>(A, Broken);

impl<A: Analysis> Analysis for WithBroken<A> {
    type Partial = A::Partial;

    fn interest(&self) -> Interest<'_> {
        self.0.interest()
    }

    fn begin(&self, start: &Start<'_>) -> A::Partial {
        self.0.begin(start)
    }

    fn fold(&self, partial: &mut A::Partial, item: Item<'_>) {
        self.0.fold(partial, item);
    }

    fn merge(&self, earlier: A::Partial, later: A::Partial, threads: &Threads) -> A::Partial {
        match self.1 {
            Broken::Swapped => self.0.merge(later, earlier, threads),
            Broken::Forgetful => earlier,
        }
    }

    fn is_sound(&self, partial: &A::Partial) -> bool {
        self.0.is_sound(partial)
    }

    fn finish(&self, partials: Vec<A::Partial>, of: &FinishContext<'_>) -> Table {
        self.0.finish(partials, of)
    }
}

impl<A: FastFlow> FastFlow for WithBroken<A> {
    type Memory = A::Memory;
}

/// Boxes the analysis of a report as a trait object.
struct Boxed;

impl Maker for Boxed {
    type Made = Box<dyn AnyAnalysis>;

    fn analysis<A: Analysis>(self, analysis: A) -> Self::Made {
        Box::new(analysis)
    }

    fn fast<A: FastFlow>(self, analysis: A) -> Self::Made {
        Box::new(analysis)
    }
}

/// Visits every distinct analysis that reports make: `(report, views of that analysis, parameters)`.
struct Each<F>(F);

trait Work {
    fn work<R: Report>(&mut self, report: &R, views: &[&str], parameters: &Parameters);
}

impl<W: Work> Visitor for Each<W> {
    fn visit<R: Report>(&mut self, report: &'static R) {
        let mut groups: Vec<(std::any::TypeId, Parameters, Vec<&str>)> = Vec::new();
        for parameters in parameters(report) {
            let partial = report.make(&parameters, Boxed).partial();
            let view = about_view(report, &parameters);
            let known = groups
                .iter_mut()
                .find(|(known, first, _)| *known == partial && is_same_question(first, &parameters));
            match known {
                Some((.., views)) if views.contains(&view) => {}
                Some((.., views)) => views.push(view),
                None => groups.push((partial, parameters, vec![view])),
            }
        }
        groups.iter().for_each(|(_, parameters, views)| self.0.work(report, views, parameters));
    }
}

/// Whether parameters ask the same but for the view.
fn is_same_question(one: &Parameters, other: &Parameters) -> bool {
    one.every == other.every && one.intervals == other.intervals
}

/// The view of some parameters, with the lifetime of the report.
fn about_view<R: Report>(report: &'static R, parameters: &Parameters) -> &'static str {
    let views = report.description().views;
    views.iter().copied().find(|view| *view == parameters.selection.view).unwrap_or_default()
}

#[derive(Default)]
struct Law {
    broken: Vec<String>,
    reports: usize,
}

impl Work for Law {
    fn work<R: Report>(&mut self, report: &R, views: &[&str], parameters: &Parameters) {
        self.reports += 1;
        if let Err(why) = report.make(parameters, Holds(views)) {
            self.broken.push(format!(
                "{} {views:?} {:?}: {why}",
                report.description().name,
                parameters.every
            ));
        }
    }
}

#[test]
fn any_tasks_in_any_grouping_give_the_table_of_one() {
    let mut law = Each(Law::default());
    hodo_analyses::each(&mut law);
    assert!(law.0.broken.is_empty(), "{}", law.0.broken.join("\n\n"));
    assert!(law.0.reports > 20, "{}", law.0.reports);
}

#[derive(Default)]
struct Catch(Vec<String>);

impl Work for Catch {
    fn work<R: Report>(&mut self, report: &R, views: &[&str], parameters: &Parameters) {
        let name = report.description().name;
        for broken in [Broken::Swapped, Broken::Forgetful] {
            let commutes = broken == Broken::Swapped && report.make(parameters, IsCommutative);
            if report.make(parameters, IsCaught(broken, views)) == commutes {
                self.0.push(format!("{name} {views:?} {:?} {broken:?}", parameters.every));
            }
        }
    }
}

#[test]
fn a_broken_merge_is_caught() {
    let mut catch = Each(Catch::default());
    hodo_analyses::each(&mut catch);
    assert!(catch.0.0.is_empty(), "{:?}", catch.0.0);
}

#[derive(Default)]
struct Alone {
    compared: usize,
    different: Vec<String>,
}

impl Visitor for Alone {
    fn visit<R: Report>(&mut self, report: &'static R) {
        let about = report.description();
        let one = |tid| Selection { tids: vec![tid], ..Selection::default() };
        let choices = [Selection::default(), one(1), Selection { cpus: vec![1], ..Selection::default() }];
        for (selection, view) in
            choices.iter().flat_map(|selection| about.views.iter().map(move |view| (selection, view)))
        {
            let selection = Selection { view: (*view).to_owned(), ..selection.clone() };
            let make = |alone| {
                report
                    .make(&Parameters { selection: selection.clone(), alone, ..Parameters::default() }, Boxed)
            };
            let (usual, alone) = (make(false), make(true));
            if usual.partial() != alone.partial() {
                self.compared += 1;
                self.different.extend(events::are_same(&*alone, &*usual, &selection).err());
            }
        }
    }
}

/// A cheaper analysis makes the same table.
#[test]
fn alone_the_table_is_the_same() {
    let mut alone = Alone::default();
    hodo_analyses::each(&mut alone);
    assert!(alone.different.is_empty(), "{}", alone.different.join("\n\n"));
    // System calls by name, for all; threads and processes, for all, for one thread, for one CPU.
    assert_eq!(alone.compared, 7);
}
