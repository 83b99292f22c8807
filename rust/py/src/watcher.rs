//! Runs a fit beside the interpreter: signals are heard and the callback is called while the core works.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use sparsebayes::internal::BlockCheckpoint;
use sparsebayes::internal::beside;
use sparsebayes::{Action, Error, Step};

use crate::blocks::to_dict;
use crate::errors::{internal, invalid, to_python};

/// How often signals are looked at: Ctrl-C is heard within this, whatever the core is doing.
const HEARTBEAT: Duration = Duration::from_millis(50);

/// What a worker has to tell.
enum News {
    Step(Step),
    BlockCheckpoint(Box<BlockCheckpoint>),
}

/// Sent over by the worker, and answered with whether to go on if it waits for that.
struct Report {
    news: News,
    answer: Option<SyncSender<ControlFlow<()>>>,
}

/// Which steps the callback hears of.
enum Hearing {
    Nothing,
    /// Each of them, and the worker waits for the word.
    Each,
    /// One an interval, and the worker does not wait: for callbacks that only show how far a fit has come.
    Now {
        interval: Duration,
        last: Mutex<Instant>,
    },
}

impl Hearing {
    /// A callback with a number `seconds` wants no more than a step in so many.
    fn of(callback: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(callback) = callback else {
            return Ok(Self::Nothing);
        };
        Ok(match callback.getattr_opt("seconds")? {
            Some(seconds) => Self::Now {
                interval: Duration::try_from_secs_f64(seconds.extract()?)
                    .map_err(|error| invalid(error.to_string()))?,
                last: Mutex::new(Instant::now()),
            },
            None => Self::Each,
        })
    }
}

/// The fit's side: a flag it has to heed and a watch to call after each step.
pub(crate) struct Line {
    pub(crate) cancel: Arc<AtomicBool>,
    /// There as long as the fit.
    pub(crate) going_on: Arc<()>,
    hearing: Hearing,
    with_keep: bool,
    /// Hanging up tells the interpreter's side that the work is done.
    reports: SyncSender<Report>,
}

impl Line {
    /// Reports a step and waits for the word.
    pub(crate) fn watch(&self, step: &Step) -> ControlFlow<()> {
        if self.cancel.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        match &self.hearing {
            Hearing::Nothing => ControlFlow::Continue(()),
            Hearing::Each => self.tell(News::Step(*step)),
            Hearing::Now { interval, last } => {
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                if last.elapsed() >= *interval {
                    *last = Instant::now();
                    // What is still being shown when the next is due, is due no more.
                    let news = News::Step(*step);
                    let _ = self.reports.try_send(Report { news, answer: None });
                }
                ControlFlow::Continue(())
            }
        }
    }

    /// Hands over a sketch and waits until it is kept.
    pub(crate) fn keep(&self, sketch: &BlockCheckpoint) -> Result<(), Error> {
        if self.with_keep
            && self
                .tell(News::BlockCheckpoint(Box::new(sketch.clone())))
                .is_break()
        {
            return Err(Error::Interrupted);
        }
        Ok(())
    }

    fn tell(&self, news: News) -> ControlFlow<()> {
        let (answer, word) = sync_channel(1);
        let report = Report {
            news,
            answer: Some(answer),
        };
        let heard = self.reports.send(report).is_ok();
        let word = if heard { word.recv().ok() } else { None };
        word.unwrap_or_else(|| {
            // The other side left with an exception, and may not have said so yet: work that is only stopped would
            // go on to its end, and ask providers what no fit that goes on asks here.
            self.cancel.store(true, Ordering::Relaxed);
            ControlFlow::Break(())
        })
    }
}

/// Runs `work` on so many threads (`None`: one per core) with the interpreter released, while this one hears signals and serves the
/// callback. An exception from either ends the work and is raised; so is a panic, as `NumericalError`.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    n_threads: Option<usize>,
    callback: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Line) -> Result<T, Error> + Send,
) -> PyResult<T> {
    run_kept(py, n_threads, callback, None, work)
}

/// [`run`] of work that hands over sketches, each of which `keep` is called with.
pub(crate) fn run_kept<T: Send>(
    py: Python<'_>,
    n_threads: Option<usize>,
    callback: Option<&Bound<'_, PyAny>>,
    keep: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Line) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let cancel = Arc::new(AtomicBool::new(false));
    let (reports, inbox) = sync_channel::<Report>(1);
    let (at_work, left) = sync_channel::<Infallible>(1);
    let (hearing, with_keep) = (Hearing::of(callback)?, keep.is_some());
    let line = Line {
        cancel: Arc::clone(&cancel),
        going_on: Arc::default(),
        hearing,
        with_keep,
        reports,
    };
    let work = move || {
        let _at_work = at_work;
        work(&{ line })
    };
    let meanwhile = || {
        let heard = attend(py, callback, keep, inbox);
        if heard.is_err() {
            cancel.store(true, Ordering::Relaxed);
            // Nothing holds the interpreter until the work has noticed.
            let _ended = py.detach(move || left.recv());
        }
        heard
    };
    let (outcome, heard) = beside(n_threads, work, meanwhile).map_err(|error| to_python(&error))?;
    heard?;
    match outcome {
        Ok(result) => result.map_err(|error| to_python(&error)),
        Err(payload) => Err(internal(payload.as_ref())),
    }
}

/// Serves reports and hears signals until the worker hangs up.
fn attend(
    py: Python<'_>,
    callback: Option<&Bound<'_, PyAny>>,
    keep: Option<&Bound<'_, PyAny>>,
    mut inbox: Receiver<Report>,
) -> PyResult<()> {
    loop {
        py.check_signals()?;
        let message;
        (inbox, message) = py.detach(move || {
            let message = inbox.recv_timeout(HEARTBEAT);
            (inbox, message)
        });
        let report = match message {
            Ok(report) => report,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        let stop = match (report.news, callback, keep) {
            (News::Step(step), Some(callback), _) => call(callback, &step)?,
            (News::BlockCheckpoint(sketch), _, Some(keep)) => {
                keep.call1((to_dict(py, &sketch)?,))?;
                false
            }
            _ => false,
        };
        let word = if stop {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        };
        if let Some(answer) = report.answer {
            // The worker waits for this word, so it is there to hear it.
            let _ = answer.send(word);
        }
    }
}

fn call(callback: &Bound<'_, PyAny>, step: &Step) -> PyResult<bool> {
    let (action, index) = step.action.parts();
    let index = index.map_or(-1, |j| i64::try_from(j).unwrap_or(i64::MAX));
    let swept = match step.action {
        Action::Sweep { done, of } => Some((done, of)),
        _ => None,
    };
    let step = (
        step.iteration,
        action,
        index,
        step.gain,
        step.log_evidence,
        step.n_active,
        step.beta,
    );
    // What callbacks of other fits need not take.
    let answer = match swept {
        Some(swept) => {
            let (a, b, c, d, e, f, g) = step;
            callback.call1((a, b, c, d, e, f, g, swept))?
        }
        None => callback.call1(step)?,
    };
    answer.is_truthy()
}
