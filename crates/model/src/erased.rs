//! Type-erased analyses, so that analyses with different partials run side by side.

use std::any::{Any, TypeId};

use crate::{
    Analysis, FinishContext, Heading, Interest, Item, Start, Table, TableBuilder,
    kernel::{Chosen, Threads},
};

/// The type-erased partial of an analysis.
pub type AnyPartial = Box<dyn Any + Send + Sync>;

/// A type-erased [`Analysis`]. Methods panic on a partial of another analysis.
pub trait AnyAnalysis: Send + Sync {
    /// See [`Analysis::interest`].
    fn interest(&self) -> Interest<'_>;
    /// See [`Analysis::begin`].
    fn begin(&self, start: &Start<'_>) -> AnyPartial;
    /// Folds events; see [`Analysis::fold`].
    fn fold(&self, partial: &mut AnyPartial, events: Chosen<'_>);
    /// Folds one item; see [`Analysis::fold`]. Slower per item than [`fold`](AnyAnalysis::fold), so only for rare
    /// items.
    fn fold_item(&self, partial: &mut AnyPartial, item: Item<'_>);
    /// See [`Analysis::merge`].
    fn merge(&self, earlier: AnyPartial, later: AnyPartial, threads: &Threads) -> AnyPartial;
    /// See [`Analysis::is_commutative`].
    fn is_commutative(&self) -> bool;
    /// See [`Analysis::finish`].
    fn finish(&self, partials: Vec<AnyPartial>, context: &FinishContext<'_>) -> Table;
    /// See [`Analysis::finish_several`].
    fn finish_several(&self, traces: Vec<(Vec<AnyPartial>, FinishContext<'_>)>) -> Vec<Table>;
    /// See [`Analysis::heading`].
    fn heading(&self) -> Option<Heading>;
    /// See [`Analysis::settle`].
    fn settle(&self, partial: &mut AnyPartial, context: &FinishContext<'_>, rows: &mut TableBuilder);
    /// The type of the analysis's partials.
    fn partial(&self) -> TypeId;
    /// Serializes a partial, to send it to another process.
    fn pack(&self, partial: &AnyPartial) -> Vec<u8>;
    /// Deserializes a partial. Returns `None` if the bytes are not a partial of this analysis or the partial is not
    /// [sound](Analysis::is_sound).
    fn unpack(&self, bytes: &[u8]) -> Option<AnyPartial>;
}

impl std::fmt::Debug for dyn AnyAnalysis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AnyAnalysis").field(&self.partial()).finish()
    }
}

const OWN: &str = "a partial of this analysis";

impl<A: Analysis> AnyAnalysis for A {
    fn interest(&self) -> Interest<'_> {
        Analysis::interest(self)
    }

    fn begin(&self, start: &Start<'_>) -> AnyPartial {
        Box::new(Analysis::begin(self, start))
    }

    fn fold(&self, partial: &mut AnyPartial, events: Chosen<'_>) {
        let partial = partial.downcast_mut::<A::Partial>().expect(OWN);
        events.iter().for_each(|event| Analysis::fold(self, partial, Item::Event(&event)));
    }

    fn fold_item(&self, partial: &mut AnyPartial, item: Item<'_>) {
        Analysis::fold(self, partial.downcast_mut::<A::Partial>().expect(OWN), item);
    }

    fn merge(&self, earlier: AnyPartial, later: AnyPartial, threads: &Threads) -> AnyPartial {
        let own = |partial: AnyPartial| *partial.downcast().expect(OWN);
        Box::new(Analysis::merge(self, own(earlier), own(later), threads))
    }

    fn is_commutative(&self) -> bool {
        Analysis::is_commutative(self)
    }

    fn finish(&self, partials: Vec<AnyPartial>, context: &FinishContext<'_>) -> Table {
        let own = partials.into_iter().map(|partial| *partial.downcast().expect(OWN));
        Analysis::finish(self, own.collect(), context)
    }

    fn finish_several(&self, traces: Vec<(Vec<AnyPartial>, FinishContext<'_>)>) -> Vec<Table> {
        let own = |partial: AnyPartial| *partial.downcast().expect(OWN);
        let traces =
            traces.into_iter().map(|(partials, context)| (partials.into_iter().map(own).collect(), context));
        Analysis::finish_several(self, traces.collect())
    }

    fn heading(&self) -> Option<Heading> {
        Analysis::heading(self)
    }

    fn settle(&self, partial: &mut AnyPartial, context: &FinishContext<'_>, rows: &mut TableBuilder) {
        Analysis::settle(self, partial.downcast_mut::<A::Partial>().expect(OWN), context, rows);
    }

    fn partial(&self) -> TypeId {
        TypeId::of::<A::Partial>()
    }

    fn pack(&self, partial: &AnyPartial) -> Vec<u8> {
        let partial: &A::Partial = partial.downcast_ref().expect(OWN);
        postcard::to_allocvec(partial).expect("writing to memory does not fail")
    }

    fn unpack(&self, bytes: &[u8]) -> Option<AnyPartial> {
        let (partial, rest) = postcard::take_from_bytes::<A::Partial>(bytes).ok()?;
        let is_sound = rest.is_empty() && Analysis::is_sound(self, &partial);
        is_sound.then(|| Box::new(partial) as AnyPartial)
    }
}
