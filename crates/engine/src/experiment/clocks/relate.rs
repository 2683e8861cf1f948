//! Decides from the formats' metadata whether two clocks are the same.

use hodo_formats::{ClockIdentity, ClockKind};

/// Two sessions of one boot place the clock's zero within this many nanoseconds of each other, because the wall clock
/// is corrected between them. Boots are further apart, as a machine takes longer to start.
const SAME_BOOT: u128 = 2_000_000_000;

/// The conversion of one clock's times to another's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Related {
    /// The offset to add to the other's times, in nanoseconds.
    pub(super) shift: i128,
    /// The evidence, for display.
    pub(super) how: String,
}

/// Relates `other` to `clock`.
///
/// # Errors
/// Returns the missing or contradicting information, for display.
pub(super) fn relate(clock: &ClockIdentity, other: &ClockIdentity) -> Result<Related, String> {
    if let (Some(one), Some(two)) = (&clock.host, &other.host)
        && one != two
    {
        return Err(format!("they are of different hosts, `{one}` and `{two}`"));
    }
    if let (Some(one), Some(two)) = (clock.tsc, other.tsc) {
        // The kernel calibrates the TSC again at each boot, so the multiplier changes.
        return match (one.multiplier, one.shift) == (two.multiplier, two.shift) {
            true => Ok(Related {
                shift: one.zero - two.zero,
                how: "both follow the TSC by the same multiplier and shift".to_owned(),
            }),
            false => {
                Err("they follow the TSC by different multipliers: two machines, or two boots of one"
                    .to_owned())
            }
        };
    }
    if clock.kind != other.kind {
        return Err(format!("one is {}, the other {}{}", clock.kind, other.kind, advice(clock, other)));
    }
    let shift = clock.shown_zero - other.shown_zero;
    match &clock.kind {
        ClockKind::Unknown => Err("no trace records the clock of its times".to_owned()),
        ClockKind::Virtual => Err("each emulated processor has its own time".to_owned()),
        ClockKind::Named(name) => match (&clock.uid, &other.uid) {
            (Some(one), Some(two)) if one == two => {
                Ok(Related { shift, how: format!("one clock: `{name}` with the UUID {one}") })
            }
            (Some(_), Some(_)) => Err(format!("their clocks `{name}` have different UUIDs")),
            _ => Err(format!("their clocks `{name}` have no UUID that would identify them as one")),
        },
        kind => {
            let how = of_one_boot(clock, other, kind)?;
            Ok(Related { shift, how })
        }
    }
}

/// Checks that two kernel clocks are of one host and one boot; returns the evidence in words.
fn of_one_boot(clock: &ClockIdentity, other: &ClockIdentity, kind: &ClockKind) -> Result<String, String> {
    if let (Some(one), Some(two)) = (&clock.uid, &other.uid) {
        return if one == two {
            Ok(format!("one clock: {kind} of the boot {one}"))
        } else {
            Err(format!("{kind} starts again at each boot, and these are two boots: {one} and {two}"))
        };
    }
    let (Some(host), Some(_)) = (&clock.host, &other.host) else {
        return Err(format!("each is {kind}, but one does not record its host"));
    };
    if *kind == ClockKind::Posix(0) {
        return Ok(format!("one clock: {kind} of `{host}`"));
    }
    let Some((one, two)) = clock.unix_zero.zip(other.unix_zero) else {
        return Ok(format!(
            "one clock: {kind} of `{host}`; assumed to be one boot, because one trace does not record it"
        ));
    };
    let apart = one.abs_diff(two);
    match apart <= SAME_BOOT {
        true => Ok(format!("one clock: {kind} of `{host}`, whose zero both place within {apart} ns")),
        false => Err(format!(
            "each is {kind} of `{host}`, but their zeros are {} s apart: two boots",
            apart / 1_000_000_000
        )),
    }
}

/// Suggests how to record so that the clocks are the same.
fn advice(clock: &ClockIdentity, other: &ClockIdentity) -> &'static str {
    let either = |kind: ClockKind| clock.kind == kind || other.kind == kind;
    let (perf, monotonic) = (either(ClockKind::Perf), either(ClockKind::Posix(1)));
    match (perf, monotonic) {
        _ if either(ClockKind::Virtual) => "",
        (true, true) => {
            " (`perf record -k CLOCK_MONOTONIC` records software events on LTTng's clock, \
             ftrace's trace_clock `perf` kernel events on perf's)"
        }
        (true, false) => " (ftrace's trace_clock `perf` is perf's clock)",
        (false, true) => " (ftrace's trace_clock `mono` is CLOCK_MONOTONIC)",
        (false, false) => "",
    }
}

#[cfg(test)]
mod tests {
    use hodo_formats::TscScale;

    use super::*;

    fn monotonic(host: &str, zero: i128) -> ClockIdentity {
        ClockIdentity {
            kind: ClockKind::Posix(1),
            host: Some(host.to_owned()),
            unix_zero: Some(zero),
            shown_zero: zero,
            ..ClockIdentity::default()
        }
    }

    #[test]
    fn one_clock_of_one_boot_has_one_zero() {
        let (one, other) = (monotonic("a", 1_000_000_000_000), monotonic("a", 1_000_000_000_700));
        assert_eq!(relate(&one, &other).unwrap().shift, -700);
        // perf's times count from the boot.
        let perf = ClockIdentity { shown_zero: 0, ..monotonic("a", 1_000_000_000_100) };
        assert_eq!(relate(&one, &perf).unwrap().shift, 1_000_000_000_000);
        assert!(relate(&one, &monotonic("b", 1_000_000_000_000)).unwrap_err().contains("`a` and `b`"));
        assert!(relate(&one, &monotonic("a", 1_090_000_000_000)).unwrap_err().contains("90 s apart"));
        let silent = ClockIdentity { host: None, ..other.clone() };
        assert!(relate(&one, &silent).unwrap_err().contains("does not record its host"));
        let with = |uid: &str| ClockIdentity { uid: Some(uid.to_owned()), ..one.clone() };
        assert!(relate(&with("x"), &with("x")).is_ok() && relate(&with("x"), &with("y")).is_err());
    }

    #[test]
    fn the_counter_relates_perf_and_ftrace() {
        let tsc = |kind, zero| ClockIdentity {
            kind,
            tsc: Some(TscScale { multiplier: 3, shift: 2, zero }),
            ..ClockIdentity::default()
        };
        let (perf, ftrace) = (tsc(ClockKind::Perf, 500), tsc(ClockKind::Tsc, 20));
        assert_eq!(relate(&perf, &ftrace).unwrap().shift, 480);
        let mut other = ftrace.clone();
        other.tsc = Some(TscScale { multiplier: 4, shift: 2, zero: 20 });
        assert!(relate(&perf, &other).unwrap_err().contains("multipliers"));
    }

    #[test]
    fn clocks_without_a_common_name_are_not_related() {
        let named = |name: &str, uid: Option<&str>| ClockIdentity {
            kind: ClockKind::Named(name.to_owned()),
            uid: uid.map(str::to_owned),
            ..ClockIdentity::default()
        };
        assert!(relate(&named("c", None), &named("c", None)).is_err());
        assert!(relate(&named("c", Some("u")), &named("c", Some("v"))).is_err());
        assert!(relate(&named("c", Some("u")), &named("c", Some("u"))).is_ok());
        assert!(relate(&ClockIdentity::default(), &ClockIdentity::default()).is_err());
        let perf = ClockIdentity { kind: ClockKind::Perf, ..ClockIdentity::default() };
        assert!(relate(&perf, &monotonic("a", 1)).unwrap_err().contains("perf record -k"));
    }
}
