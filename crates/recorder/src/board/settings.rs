//! Parses the settings of a board, such as `slaves=8,protocol=burst,time=60s`.

use std::{fmt::Write, path::Path, str::FromStr, time::Duration};

/// The protocol of exchanges between master and slaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// An interrupt, followed by further exchanges for which the slave polls in its handler.
    #[default]
    Burst,
    /// An interrupt for each exchange.
    Interrupt,
    /// The slave polls.
    Polling,
}

/// The settings of a board: its slaves, their clocks, and the exchanges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardSettings {
    /// Number of slaves with a RISC-V processor.
    pub slaves: u32,
    /// Number of slaves with a Cortex-M3; their numbers follow those of the others.
    pub cortex_m3: u32,
    /// How messages are exchanged.
    pub protocol: Protocol,
    /// Exchanges of a burst; 1 to 8.
    pub exchanges: u32,
    /// Time between bursts of exchanges with a slave.
    pub period: Duration,
    /// Time between traced ticks of slaves; zero for no ticks.
    pub tick: Duration,
    /// Duration of the recording; `None` until the recorder is interrupted.
    pub time: Option<Duration>,
    /// Deviation of the slaves' clocks from their nominal frequency, in parts per billion; `None` selects a different
    /// value below 100 ppm for each.
    pub drift_ppb: Option<i64>,
    /// Amplitude of a periodic change of their frequency, in parts per billion.
    pub wander_ppb: u32,
    /// Period of that change.
    pub wander_period: Duration,
    /// Whether slaves compute the edges of pictures that the master sends them in pieces; requires ticks.
    pub sobel: bool,
    /// Time after the start at which an urgent task wakes on slaves 1, 5, 9 … and takes two thirds of their processor.
    pub urgent: Option<Duration>,
    /// Whether slaves record a hardware trace.
    pub hardware: bool,
    /// Steps of the first slave's clock: time since its start, and number of ticks of 100 ns.
    pub steps: Vec<(Duration, i64)>,
}

impl Default for BoardSettings {
    fn default() -> BoardSettings {
        BoardSettings {
            slaves: 1,
            cortex_m3: 0,
            protocol: Protocol::Burst,
            exchanges: 5,
            period: Duration::from_millis(10),
            tick: Duration::from_millis(1),
            time: Some(Duration::from_secs(10)),
            drift_ppb: None,
            wander_ppb: 0,
            wander_period: Duration::from_secs(20),
            sobel: false,
            urgent: None,
            hardware: false,
            steps: Vec::new(),
        }
    }
}

/// Maximum number of slaves of a board.
const MOST_SLAVES: u32 = 64;
/// Maximum number of steps of a clock.
const MOST_STEPS: usize = 4;
/// Default drifts of slaves in parts per billion; the list repeats after eight slaves.
const DRIFTS: [i64; 8] = [37_000, -21_000, 55_000, -71_000, 13_000, -44_000, 82_000, -5_000];

impl FromStr for BoardSettings {
    type Err = String;

    /// # Errors
    ///
    /// Returns a sentence with the invalid setting and the expected value.
    fn from_str(text: &str) -> Result<BoardSettings, String> {
        let mut settings = BoardSettings::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) =
                part.split_once('=').ok_or_else(|| format!("{part}: expected NAME=VALUE, as in slaves=8"))?;
            settings.set(name, value).map_err(|expected| format!("{part}: expected {expected}"))?;
        }
        if (settings.sobel || settings.urgent.is_some()) && settings.tick.is_zero() {
            return Err("tick=0: work=sobel and urgent=TIME require ticks".to_owned());
        }
        match settings.slaves + settings.cortex_m3 {
            1..=MOST_SLAVES => Ok(settings),
            _ => Err(format!("a board has 1 to {MOST_SLAVES} slaves")),
        }
    }
}

impl BoardSettings {
    /// Applies one setting; the error contains the expected value.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let count = |range: std::ops::RangeInclusive<u32>| {
            let number = value.parse().ok().filter(|number| range.contains(number));
            number.ok_or(format!("a number from {} to {}", range.start(), range.end()))
        };
        match name {
            "slaves" => self.slaves = count(0..=MOST_SLAVES)?,
            "cortex-m3" => self.cortex_m3 = count(0..=MOST_SLAVES)?,
            "exchanges" => self.exchanges = count(1..=8)?,
            "protocol" => {
                self.protocol = match value {
                    "burst" => Protocol::Burst,
                    "interrupt" => Protocol::Interrupt,
                    "polling" => Protocol::Polling,
                    _ => return Err("burst, interrupt or polling".to_owned()),
                };
            }
            "period" => {
                self.period = duration(value)?;
                if self.period < Duration::from_micros(100) {
                    return Err("at least 100us".to_owned());
                }
            }
            "tick" if value == "0" => self.tick = Duration::ZERO,
            "tick" => self.tick = duration(value)?,
            "time" if value == "0" => self.time = None,
            "time" => self.time = Some(duration(value)?),
            "drift" => self.drift_ppb = Some(ppb(value)?),
            "wander" => {
                let (size, period) = value.split_once('/').unwrap_or((value, "20s"));
                self.wander_ppb = u32::try_from(ppb(size)?).map_err(|_| "no negative number")?;
                self.wander_period = duration(period)?;
            }
            "work" if value == "sobel" => self.sobel = true,
            "work" => return Err("sobel".to_owned()),
            "urgent" => self.urgent = Some(duration(value)?),
            "trace" if value == "hardware" => self.hardware = true,
            "trace" => return Err("hardware".to_owned()),
            "step" => {
                let expected = || "TIME:TICKS, as in 5s:10000".to_owned();
                let (time, ticks) = value.split_once(':').ok_or_else(expected)?;
                self.steps.push((duration(time)?, ticks.parse().map_err(|_| expected())?));
                if self.steps.len() > MOST_STEPS {
                    return Err(format!("at most {MOST_STEPS} steps"));
                }
            }
            _ => {
                return Err(
                    "one of slaves, cortex-m3, protocol, exchanges, period, tick, time, drift, wander, step, work, urgent, trace"
                        .to_owned(),
                );
            }
        }
        Ok(())
    }

    /// The number of all slaves.
    pub(super) fn count(&self) -> u32 {
        self.slaves + self.cortex_m3
    }

    /// Returns the master's settings file: see `embedded/master/master.c`. The files of each slave are in `spool`,
    /// named by its number.
    pub(super) fn for_master(&self, out: &Path, metadata: &Path, spool: &Path) -> String {
        let mut text = String::new();
        let exchanges = if self.protocol == Protocol::Burst { self.exchanges } else { 1 };
        let values = [
            ("out", out.display().to_string()),
            ("metadata", metadata.display().to_string()),
            ("period_us", self.period.as_micros().to_string()),
            ("exchanges", exchanges.to_string()),
            ("polling", u32::from(self.protocol == Protocol::Polling).to_string()),
            ("tick_us", self.tick.as_micros().to_string()),
            ("work", u32::from(self.sobel).to_string()),
            ("urgent_ms", self.urgent.map_or(0, |time| time.as_millis()).to_string()),
            ("seconds", self.time.map_or(0.0, |time| time.as_secs_f64()).to_string()),
        ];
        for (name, value) in values {
            _ = writeln!(text, "{name} {value}");
        }
        for slave in 0..self.count() {
            let drift = self.drift_ppb.unwrap_or(DRIFTS[slave as usize % DRIFTS.len()]);
            // Any offset, so that the clocks of no two slaves agree.
            let offset = (u64::from(slave) + 1) * 123_456_789;
            let (ram, socket) = (ram(spool, slave), socket(spool, slave));
            _ = write!(text, "slave {} {} {offset} {drift}", ram.display(), socket.display());
            _ = write!(text, " {} {}", self.wander_ppb, self.wander_period.as_millis());
            for (time, ticks) in self.steps.iter().filter(|_| slave == 0) {
                _ = write!(text, " {} {ticks}", time.as_millis());
            }
            text.push('\n');
        }
        text
    }
}

/// Returns the file with the RAM of a slave.
pub(super) fn ram(spool: &Path, slave: u32) -> std::path::PathBuf {
    spool.join(format!("{slave}.ram"))
}

/// Returns the socket of a slave's UART.
pub(super) fn socket(spool: &Path, slave: u32) -> std::path::PathBuf {
    spool.join(format!("{slave}.uart"))
}

/// Parses a number and a unit of time.
fn duration(text: &str) -> Result<Duration, String> {
    let units = [("us", 1), ("ms", 1_000), ("min", 60_000_000), ("s", 1_000_000)];
    let micros = units
        .iter()
        .find_map(|&(unit, scale)| Some(u64::from(text.strip_suffix(unit)?.parse::<u32>().ok()?) * scale));
    let duration = micros.filter(|&micros| micros > 0).map(Duration::from_micros);
    duration.ok_or_else(|| "a time such as 500us, 10ms, 60s or 2min".to_owned())
}

/// Parses parts per million or billion, below 1,000 ppm; returns parts per billion.
fn ppb(text: &str) -> Result<i64, String> {
    let number = |digits: &str| digits.parse::<i64>().ok();
    let ppb = match text.strip_suffix("ppm") {
        Some(digits) => number(digits).and_then(|ppm| ppm.checked_mul(1_000)),
        None => text.strip_suffix("ppb").and_then(number),
    };
    ppb.filter(|ppb| ppb.abs() < 1_000_000).ok_or_else(|| "parts such as 37ppm or -500ppb".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_understood() {
        let text = "slaves=7,cortex-m3=1,protocol=polling,period=500us,time=2min,drift=-3ppm,wander=5ppm/20s,step=5s:-100";
        let settings: BoardSettings = text.parse().unwrap();
        assert_eq!((settings.count(), settings.protocol), (8, Protocol::Polling));
        assert_eq!(settings.period, Duration::from_micros(500));
        assert_eq!(settings.time, Some(Duration::from_secs(120)));
        assert_eq!((settings.drift_ppb, settings.wander_ppb), (Some(-3_000), 5_000));
        assert_eq!(settings.steps, [(Duration::from_secs(5), -100)]);
        assert_eq!("".parse(), Ok(BoardSettings::default()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("slaves=65", "slaves=65: expected a number from 0 to 64"),
            ("slaves=0", "a board has 1 to 64 slaves"),
            ("slaves=60,cortex-m3=5", "a board has 1 to 64 slaves"),
            ("speed=1", "speed=1: expected one of slaves"),
            ("work=sobel,tick=0", "tick=0: work=sobel"),
            ("period", "period: expected NAME=VALUE"),
            ("period=1us", "period=1us: expected at least 100us"),
            ("wander=-5ppm", "wander=-5ppm: expected no negative number"),
            ("drift=1000ppm", "drift=1000ppm: expected parts such as"),
            ("time=99999999999s", "time=99999999999s: expected a time"),
        ] {
            let error = text.parse::<BoardSettings>().unwrap_err();
            assert!(error.starts_with(named), "{error}");
        }
    }

    #[test]
    fn the_settings_of_the_master_list_each_slave() {
        let settings: BoardSettings = "slaves=2,protocol=interrupt,step=1s:7,time=1s".parse().unwrap();
        let text = settings.for_master(Path::new("out"), Path::new("metadata"), Path::new("spool"));
        let shared = "exchanges 1\npolling 0\ntick_us 1000\nwork 0\nurgent_ms 0\nseconds 1\n";
        assert!(text.contains(shared), "{text}");
        let slaves = "slave spool/0.ram spool/0.uart 123456789 37000 0 20000 1000 7\n\
                      slave spool/1.ram spool/1.uart 246913578 -21000 0 20000\n";
        assert!(text.ends_with(slaves), "{text}");
    }
}
