//! Streams tables that are larger than memory: rows are emitted as they settle.
//!
//! ```text
//! first pass:  names of threads, the trace's span
//! second pass: slices ──fold, merge──► partial ──settle──► rows ──► batches, as they fill up
//!                                         └────finish────► the last rows, summary, loss
//! ```
//!
//! A row contains names that may be known only at the end of the trace, so streaming a table takes two passes.

use std::sync::{Arc, PoisonError};

use hodo_model::{
    Analysis, AnyAnalysis, FinishContext, Heading, Interest, Item, NoSources, Shape, Start, Table,
    TableBuilder, kernel::Threads, pass::Pass, table::RecordBatch,
};

use super::{
    Experiment, Outcome, Request, Times,
    request::Analyses,
    run::{EventResults, Plan, State, check_events, finish_events},
};
use crate::{
    events::{fold_all, plan},
    flow::passes::Progress,
    refusal::Refusal,
};

/// An analysis that requests no events: its pass only collects the names of threads.
#[derive(Clone, Copy, Debug)]
struct Names;

impl Analysis for Names {
    type Partial = ();

    fn interest(&self) -> Interest<'_> {
        Interest::events(&[])
    }

    fn begin(&self, _: &Start<'_>) {}

    fn fold(&self, (): &mut (), _: Item<'_>) {}

    fn merge(&self, (): (), (): (), _: &Threads) {}

    fn finish(&self, _: Vec<()>, _: &FinishContext<'_>) -> Table {
        Table::new("names", Shape::Counters, Vec::new(), Vec::new(), [])
    }
}

/// A first pass, for the streams of the same times that follow.
pub(super) struct FirstPass {
    times: Times,
    results: Arc<EventResults>,
}

impl Experiment {
    /// Returns the heading of the requested table if [`Experiment::stream`] supports it: the request has a single event
    /// report, its rows settle, and there are events.
    pub fn heading(&self, request: &Request) -> Option<Heading> {
        let analyses = request.analyses();
        match analyses.of_events().as_slice() {
            [analysis] if request.reports.len() == 1 && self.contents.events => analysis.heading(),
            _ => None,
        }
    }

    /// Streams a table that has a [heading](Experiment::heading). `rows` receives batches of rows as they settle, and
    /// stops the stream by returning `false`. The table of the outcome contains the last rows, and the summary and losses
    /// of the whole trace. `progress` is as for [`Experiment::run`].
    ///
    /// # Errors
    /// Returns a refusal if the request does not fit the traces.
    pub fn stream(
        &self,
        request: &Request,
        rows: &mut (dyn FnMut(&RecordBatch) -> bool + Send),
        progress: Progress<'_>,
    ) -> Result<Outcome, Refusal> {
        self.stream_all(std::slice::from_ref(request), None, &mut |_, batch| rows(batch), progress)
    }

    /// Streams several tables in one pass. `rows` also receives the number of the request. `read` has a list for each request:
    /// cells of columns without a flag in it are null. The requests differ only in their reports and views; their analyses do
    /// not look at the view.
    ///
    /// # Errors
    /// Returns a refusal if a request does not fit the traces.
    pub fn stream_all(
        &self,
        requests: &[Request],
        read: Option<&[Vec<bool>]>,
        rows: &mut (dyn FnMut(usize, &RecordBatch) -> bool + Send),
        progress: Progress<'_>,
    ) -> Result<Outcome, Refusal> {
        let mut analyses = Analyses::default();
        for request in requests {
            request.check()?;
            let own = request.analyses();
            self.fits(&own)?;
            analyses.events.extend(own.events);
        }
        let request = &requests[0];
        let selection = &request.parameters.selection;
        self.with(|traces| {
            check_events(traces, request)?;
            let plan_of_events = Plan::new(traces, request, None)?;
            let slices = plan(traces, &plan_of_events.events);
            let bytes = traces.event_bytes();
            let first = self.first_pass(&plan_of_events, &request.times, &mut |done| progress(done));
            let (span, threads) = (first.folded.span(), first.folded.states.threads());
            let of_events = analyses.of_events();
            let pass = Pass::new(&of_events);
            let heading =
                |analysis: &&dyn AnyAnalysis| analysis.heading().expect("the request has a heading");
            let builder = |(table, own): (usize, &&dyn AnyAnalysis)| match (heading(own).builder(), read) {
                (builder, Some(read)) => builder.leaving_out(&read[table]),
                (builder, None) => builder,
            };
            let mut builders: Vec<_> = of_events.iter().enumerate().map(builder).collect();
            let mut losses = plan_of_events.losses();
            let (folded, names) = fold_all(
                traces,
                &pass,
                &slices,
                &plan_of_events.events,
                &mut losses,
                |folded, names, done| {
                    let context = FinishContext::without_events(selection, threads, &NoSources);
                    let context = FinishContext { names, span: (span.0, folded.span().1), ..context };
                    pass.settle(&mut folded.states, &context, &mut builders);
                    drain(&mut builders, TableBuilder::full_batch, rows) && progress(bytes + done)
                },
            );
            traces.unreadable().into_iter().for_each(|loss| losses.add(loss));
            drain(&mut builders, TableBuilder::last_batch, rows);
            let events = Some(EventResults { folded, names, losses });
            let state = State { events, ..State::default() };
            Ok(finish_events(state, &analyses, request.threads))
        })
    }
}

impl Experiment {
    /// Makes the first pass, unless the stream before made it.
    fn first_pass(&self, plan: &Plan<'_, '_>, times: &Times, progress: Progress<'_>) -> Arc<EventResults> {
        let mut last = self.first_pass.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.as_ref().filter(|last| last.times == *times) {
            return Arc::clone(&last.results);
        }
        let names: [&dyn AnyAnalysis; 1] = [&Names];
        let mut is_whole = true;
        let results = Arc::new(plan.fold_events(&Pass::new(&names), &mut |done| {
            is_whole &= progress(done);
            is_whole
        }));
        if is_whole {
            *last = Some(FirstPass { times: times.clone(), results: Arc::clone(&results) });
        }
        results
    }
}

/// Passes on the batches that builders have; returns whether to continue.
fn drain(
    builders: &mut [TableBuilder],
    next: fn(&mut TableBuilder) -> Option<RecordBatch>,
    rows: &mut (dyn FnMut(usize, &RecordBatch) -> bool + Send),
) -> bool {
    builders
        .iter_mut()
        .enumerate()
        .all(|(table, builder)| std::iter::from_fn(|| next(builder)).all(|batch| rows(table, &batch)))
}
