//! Annotations: what is missing from the store, over all rows.

use hodo_store::{Budget, Wanted};

use crate::{
    Service,
    model::{Annotation, Annotations, AnnotationsParameters, Categories, Map, Style},
    output::Outcome,
    style::LOSS,
};

/// The table of losses, and the category of its annotations.
const LOSSES: &str = "losses";
/// The most annotations of an answer.
const MOST: usize = 10_000;

impl Service {
    /// Returns the categories of annotations.
    pub(crate) fn categories(&self) -> Categories {
        let lost = self.store.table(LOSSES).is_some_and(|table| table.rows() > 0);
        Categories { annotation_categories: lost.then(|| LOSSES.to_owned()).into_iter().collect() }
    }

    /// Returns the annotations in a span.
    pub(crate) fn annotations(&self, asked: &AnnotationsParameters, budget: &Budget) -> Outcome<Annotations> {
        let categories = asked.requested_marker_categories.as_ref();
        let is_wanted = categories.is_none_or(|names| names.iter().any(|name| name == LOSSES));
        let Some(table) = self.store.table(LOSSES).filter(|_| is_wanted) else {
            return Ok((Annotations { annotations: Map::new() }, String::new()));
        };
        let span = asked.requested_timerange.span();
        let wanted = Wanted { span: (span.begin, span.behind), ..Wanted::ALL };
        let found = table.records(&wanted, None, MOST, budget)?;
        let remark = if found.len() == MOST { format!("the first {MOST} losses") } else { String::new() };
        let annotation = |record: &hodo_store::Record| Annotation {
            entry_id: -1,
            time: record.begin,
            duration: record.end - record.begin,
            // Without the begin and the duration.
            label: self.cells(table, record)[2..].join(" "),
            kind: "CHART",
            style: Style { parent_key: Some(LOSS.to_owned()), values: Map::new() },
        };
        let losses = found.iter().map(annotation).collect();
        Ok((Annotations { annotations: [(LOSSES.to_owned(), losses)].into() }, remark))
    }
}
