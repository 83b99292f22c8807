//! Runs cases one after another: panics caught, time watched, answers counted.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::random::Random;

/// A case that takes longer hangs: time of the processor where the system tells, for others may be using it too. The longest
/// known that end well take three to five, and more on a slower processor.
pub(crate) const HANG: Duration = Duration::from_secs(15);

/// Seconds of the processor that this process has taken, or this thread of it.
fn processor_seconds(of: &str) -> Option<f64> {
    /// Ticks of a second in what Linux tells of processes, whatever the kernel counts by.
    const TICKS: f64 = 100.0;
    let told = std::fs::read_to_string(format!("/proc/{of}/stat")).ok()?;
    // The name before may hold anything but ends at the last bracket; then the state is the first field.
    let mut fields = told.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok();
    Some((next()? + next()?) / TICKS)
}

/// What is fuzzed.
pub(crate) trait Target: Sync {
    /// An input that can be kept in a file.
    type Input;

    fn make(&self, random: &mut Random) -> Self::Input;

    /// Runs one case and says in a word how it ended; an error is a defect.
    fn run(&self, input: &Self::Input) -> Result<&'static str, String>;

    /// What sort of case it is, for the counts.
    fn sort(&self, _: &Self::Input) -> &'static str {
        "all"
    }

    /// As the bytes of a file.
    fn to_bytes(&self, input: &Self::Input) -> Vec<u8>;

    fn read(&self, bytes: &[u8]) -> Option<Self::Input>;
}

/// How long, and where to begin.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) first: u64,
    pub(crate) cases: u64,
    pub(crate) seconds: f64,
    /// Cases that end so are named.
    pub(crate) name: Option<String>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) cases: u64,
    /// By sort and ending.
    pub(crate) endings: BTreeMap<(&'static str, &'static str), u64>,
    pub(crate) failures: Vec<(u64, String)>,
    pub(crate) slowest: (f64, u64),
    /// Those that ended as the plan says, the first of them.
    pub(crate) named: Vec<u64>,
}

/// More failures than this say nothing new.
const ENOUGH: usize = 20;

/// Where the last panic was, if panics are noted.
static WHERE: Mutex<Option<String>> = Mutex::new(None);

/// Has panics note where they are, and say nothing: they are reported with their cases.
pub(crate) fn note_panics() {
    std::panic::set_hook(Box::new(|info| {
        if let (Ok(mut place), Some(location)) = (WHERE.lock(), info.location()) {
            *place = Some(format!(" at {}:{}", location.file(), location.line()));
        }
    }));
}

/// The message of a panic.
fn message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    let place = WHERE.lock().ok().and_then(|mut place| place.take());
    let text = text.unwrap_or("no message");
    format!("panic: {text}{}", place.unwrap_or_default())
}

/// One case, whatever happens in it.
pub(crate) fn attempt<T: Target>(target: &T, input: &T::Input) -> Result<&'static str, String> {
    match catch_unwind(AssertUnwindSafe(|| target.run(input))) {
        Ok(outcome) => outcome,
        Err(payload) => Err(message(payload.as_ref())),
    }
}

impl Report {
    /// Keeps the number of a case that ended as the plan says.
    fn name(&mut self, plan: &Plan, case: u64, sort: &str, outcome: &Result<&'static str, String>) {
        if let (Some(name), Ok(ending)) = (&plan.name, outcome)
            && (name == ending || *name == format!("{sort}: {ending}"))
            && self.named.len() < ENOUGH
        {
            self.named.push(case);
        }
    }

    fn take(
        &mut self,
        case: u64,
        took: f64,
        sort: &'static str,
        outcome: Result<&'static str, String>,
    ) {
        self.cases += 1;
        if took > self.slowest.0 {
            self.slowest = (took, case);
        }
        match outcome {
            Ok(ending) => *self.endings.entry((sort, ending)).or_default() += 1,
            Err(what) => self.failures.push((case, what)),
        }
    }
}

/// Runs the cases of a plan on a thread of its own. A case that hangs ends the run, for a thread cannot be stopped.
pub(crate) fn run<T: Target + Send + 'static>(target: T, plan: &Plan) -> Report {
    // Read by the watcher below: the number of the case, when it began, and what was found so far.
    struct Shared {
        case: AtomicU64,
        began: AtomicU64,
        done: AtomicBool,
        report: Mutex<Report>,
    }
    let start = Instant::now();
    let seconds =
        move || processor_seconds("self").unwrap_or_else(|| start.elapsed().as_secs_f64());
    let shared = std::sync::Arc::new(Shared {
        case: AtomicU64::new(plan.first),
        began: AtomicU64::new(seconds().to_bits()),
        done: AtomicBool::new(false),
        report: Mutex::default(),
    });
    let (plan, theirs) = (plan.clone(), shared.clone());
    std::thread::spawn(move || {
        for case in plan.first..plan.first.saturating_add(plan.cases) {
            if start.elapsed().as_secs_f64() > plan.seconds {
                break;
            }
            let began = seconds();
            theirs.case.store(case, Ordering::Relaxed);
            theirs.began.store(began.to_bits(), Ordering::Release);
            let input = target.make(&mut Random::of_case(plan.seed, case));
            let outcome = attempt(&target, &input);
            let took = seconds() - began;
            let Ok(mut report) = theirs.report.lock() else {
                break;
            };
            let sort = target.sort(&input);
            report.name(&plan, case, sort, &outcome);
            report.take(case, took, sort, outcome);
            if report.failures.len() >= ENOUGH {
                break;
            }
        }
        theirs.done.store(true, Ordering::Release);
    });
    while !shared.done.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(50));
        let running = seconds() - f64::from_bits(shared.began.load(Ordering::Acquire));
        if running > HANG.as_secs_f64() {
            let case = shared.case.load(Ordering::Relaxed);
            let mut report = shared.report.lock().map(|mut r| std::mem::take(&mut *r));
            if let Ok(report) = &mut report {
                report
                    .failures
                    .push((case, format!("hangs for more than {HANG:?}")));
            }
            return report.unwrap_or_default();
        }
    }
    shared
        .report
        .lock()
        .map(|mut r| std::mem::take(&mut *r))
        .unwrap_or_default()
}

/// Runs the cases that a folder keeps; says of each that fails why.
pub(crate) fn replay<T: Target>(
    target: &T,
    folder: &Path,
) -> std::io::Result<(usize, Vec<String>)> {
    let mut paths = Vec::new();
    // Where nothing ever failed there is no folder.
    if folder.is_dir() {
        for entry in std::fs::read_dir(folder)? {
            paths.push(entry?.path());
        }
    }
    paths.sort();
    let mut failures = Vec::new();
    let start = Instant::now();
    let seconds =
        || processor_seconds("thread-self").unwrap_or_else(|| start.elapsed().as_secs_f64());
    for path in &paths {
        let name = path.display();
        let began = seconds();
        match target.read(&std::fs::read(path)?) {
            None => failures.push(format!("{name}: is no case")),
            Some(input) => {
                if let Err(what) = attempt(target, &input) {
                    failures.push(format!("{name}: {what}"));
                }
            }
        }
        if seconds() - began > HANG.as_secs_f64() {
            failures.push(format!("{name}: took more than {HANG:?}"));
        }
    }
    Ok((paths.len(), failures))
}
