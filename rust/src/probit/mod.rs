//! The multinomial probit likelihood: what C scores say about a class, and about the scores' noisy copies.
//!
//! Each score f_c has a copy y_c ~ Normal(f_c, 1), and the class is that of the largest copy: equation (1) of Psorakis,
//! Damoulas & Girolami (2010),
//!
//! `P(t = i | f) = E_u[prod_{j != i} Phi(u + f_i - f_j)]`, u being standard normal.
//!
//! Knows scores and labels, never Phi, alpha or beta.

mod rule;

use std::f64::consts::FRAC_1_SQRT_2;
use std::ops::Range;

use crate::linalg::parallel::map_pieces;
use crate::linalg::simd::{Simd, WithSimd, dispatch, is_fused};
use crate::normal::{cdf, log_cdf};
use crate::{Error, Result};

use rule::{ABSENT, LANES, Lanes, Modes, Nodes, Workspace, integrate};

/// Rows that one thread takes at a time.
const PIECE: usize = 256;
/// Scores beyond this have lost the digits that matter.
const MOST_SCORE: f64 = 1e12;

/// The multinomial probit likelihood, its integrals taken at a given number of nodes.
///
/// ```
/// use sparsebayes::Probit;
///
/// // Two rows with three scores each, column after column; two equal scores share what is left of the third.
/// let scores = [0.0, 3.0, 0.0, 0.0, 0.0, -800.0];
/// let probit = Probit::default();
/// let log_p = probit.log_probabilities(&scores, 3)?;
/// assert!((log_p[0].exp() - 1.0 / 3.0).abs() < 1e-9);
///
/// // The copy of the winning score is raised, the others are lowered by as much together.
/// let e = probit.expectations(&scores, &[0, 1], 3)?;
/// assert!(e.targets[0] > 0.0 && (e.targets[0] + e.targets[2] + e.targets[4]).abs() < 1e-12);
/// # Ok::<(), sparsebayes::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Probit {
    nodes: Nodes,
}

/// What an E-step gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectations {
    /// The means of the copies y given the class, an N x C table column after column: equations (3) and (4).
    pub targets: Vec<f64>,
    /// ln P(t | f) of each row's own class.
    pub log_probability: Vec<f64>,
}

impl Default for Probit {
    fn default() -> Self {
        Self {
            nodes: Nodes::new(Self::NODES),
        }
    }
}

impl Probit {
    /// Nodes that make probabilities and expectations exact to 1e-6, whatever the scores; measured in DESIGN.md.
    pub const NODES: usize = 16;

    /// With `n_nodes` nodes for each integral. Two classes need none: theirs has a closed form.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless there are 1 to 1000.
    pub fn new(n_nodes: usize) -> Result<Self> {
        if !(1..=1000).contains(&n_nodes) {
            let what = format!(
                "n_quadrature must lie between 1 and 1000, got {n_nodes}; {} are exact to 1e-6",
                Self::NODES
            );
            return Err(Error::Invalid { what });
        }
        Ok(Self {
            nodes: Nodes::new(n_nodes),
        })
    }

    /// ln P(t = c | f) for an N x C table of scores, as a table of the same form: equation (1).
    ///
    /// The probabilities of each row are divided by their sum, which differs from 1 by no more than they from the truth.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::NonFinite`] or [`Error::Invalid`] where `scores` is no such table, one of them is
    /// beyond 1e12, or there are fewer than two classes.
    pub fn log_probabilities(&self, scores: &[f64], n_classes: usize) -> Result<Vec<f64>> {
        let table = Table::new(scores, n_classes)?;
        let parts = map_pieces(table.n_rows, PIECE, |rows| {
            dispatch(AllClasses {
                nodes: &self.nodes,
                table,
                rows,
            })
        });
        Ok(joined(&parts, table.n_rows, n_classes))
    }

    /// The E-step: means of the noisy copies of the scores given that the copy of the row's own class is the largest.
    ///
    /// # Errors
    /// As [`Probit::log_probabilities`], and where a label is not below `n_classes`.
    pub fn expectations(
        &self,
        scores: &[f64],
        labels: &[usize],
        n_classes: usize,
    ) -> Result<Expectations> {
        let table = Table::new(scores, n_classes)?;
        Error::check_len("labels", table.n_rows, labels.len())?;
        if let Some(label) = labels.iter().find(|&&label| label >= n_classes) {
            let what =
                format!("labels must lie below the number of classes, {n_classes}; got {label}");
            return Err(Error::Invalid { what });
        }
        let parts = map_pieces(table.n_rows, PIECE, |rows| {
            dispatch(OwnClass {
                nodes: &self.nodes,
                table,
                labels,
                rows,
            })
        });
        let (targets, log_probability): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        Ok(Expectations {
            targets: joined(&targets, table.n_rows, n_classes),
            log_probability: log_probability.concat(),
        })
    }
}

/// N x C scores, column after column, checked.
#[derive(Debug, Clone, Copy)]
struct Table<'a> {
    scores: &'a [f64],
    n_rows: usize,
    n_classes: usize,
}

impl<'a> Table<'a> {
    fn new(scores: &'a [f64], n_classes: usize) -> Result<Self> {
        let invalid = |what: &str| Err(Error::Invalid { what: what.into() });
        if n_classes < 2 {
            return invalid("scores must have two columns at least, one for each class");
        }
        let n_rows = scores.len() / n_classes;
        Error::check_len("scores", n_rows * n_classes, scores.len())?;
        Error::check_finite("scores", scores)?;
        if scores.iter().any(|score| score.abs() > MOST_SCORE) {
            return invalid("scores must not exceed 1e12 in size; standardise the inputs");
        }
        Ok(Self {
            scores,
            n_rows,
            n_classes,
        })
    }

    fn at(&self, row: usize, class: usize) -> f64 {
        self.scores[class * self.n_rows + row]
    }

    /// How far the own score of each row is above the others, class after class, for up to [`LANES`] rows.
    #[inline(always)]
    #[allow(clippy::inline_always)] // so that it is compiled for the instruction set of its caller
    fn differences(&self, rows: &Range<usize>, own: impl Fn(usize) -> usize, out: &mut [Lanes]) {
        for (class, to) in out.iter_mut().enumerate() {
            *to = [ABSENT; LANES];
            for (row, to) in rows.clone().zip(to) {
                if own(row) != class {
                    *to = self.at(row, own(row)) - self.at(row, class);
                }
            }
        }
    }
}

/// Parts of a table, each with all columns of some rows, as one table.
fn joined(parts: &[Vec<f64>], n_rows: usize, n_classes: usize) -> Vec<f64> {
    let mut all = Vec::with_capacity(n_rows * n_classes);
    for class in 0..n_classes {
        for part in parts {
            let height = part.len() / n_classes;
            all.extend_from_slice(&part[class * height..][..height]);
        }
    }
    all
}

/// The integrals of one row after another.
struct Integrals<'a> {
    nodes: &'a Nodes,
    differences: Vec<Lanes>,
    work: Workspace,
    /// Of the row asked for last: how far the mean of each copy lies below its score.
    corrections: Vec<f64>,
}

impl<'a> Integrals<'a> {
    fn new(nodes: &'a Nodes, n_classes: usize) -> Self {
        Self {
            nodes,
            differences: vec![[0.0; LANES]; n_classes],
            work: Workspace::new(n_classes, nodes),
            corrections: vec![0.0; n_classes],
        }
    }

    /// Calls `take` with each row, ln P of its own class, and the corrections.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `differences`
    fn over<const FUSED: bool>(
        &mut self,
        table: Table<'_>,
        rows: &Range<usize>,
        own: impl Fn(usize) -> usize,
        mut take: impl FnMut(usize, f64, &[f64]),
    ) {
        for start in rows.clone().step_by(LANES) {
            let group = start..rows.end.min(start + LANES);
            table.differences(&group, &own, &mut self.differences);
            if table.n_classes == 2 {
                for row in group {
                    let log_p = self.closed_form::<FUSED>(row - start, own(row));
                    take(row, log_p, &self.corrections);
                }
                continue;
            }
            let modes = Modes::find::<FUSED>(&self.differences);
            for row in group {
                let (work, corrections) = (&mut self.work, &mut self.corrections);
                let l = row - start;
                let log_p =
                    integrate::<FUSED>(self.nodes, &modes, l, &self.differences, work, corrections);
                take(row, log_p, &self.corrections);
            }
        }
    }

    /// Two classes: P = Phi(d / sqrt 2), and its logarithm's derivative is the correction.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `differences`
    fn closed_form<const FUSED: bool>(&mut self, l: usize, own: usize) -> f64 {
        let other = 1 - own;
        let x = self.differences[other][l] * FRAC_1_SQRT_2;
        self.corrections[own] = 0.0;
        self.corrections[other] = cdf::<FUSED>(x).hazard * FRAC_1_SQRT_2;
        log_cdf(x)
    }
}

/// [`Probit::log_probabilities`] of some rows.
struct AllClasses<'a> {
    nodes: &'a Nodes,
    table: Table<'a>,
    rows: Range<usize>,
}

impl AllClasses<'_> {
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Table::differences`
    fn run<const FUSED: bool>(self) -> Vec<f64> {
        let (height, n_classes) = (self.rows.len(), self.table.n_classes);
        let mut out = vec![0.0; height * n_classes];
        let mut integrals = Integrals::new(self.nodes, n_classes);
        for class in 0..n_classes {
            let out = &mut out[class * height..][..height];
            integrals.over::<FUSED>(
                self.table,
                &self.rows,
                |_| class,
                |row, log_p, _| out[row - self.rows.start] = log_p,
            );
        }
        normalise(&mut out, height);
        out
    }
}

impl WithSimd for AllClasses<'_> {
    type Output = Vec<f64>;

    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Table::differences`
    fn with_simd<S: Simd>(self, simd: S) -> Vec<f64> {
        if is_fused(simd) {
            self.run::<true>()
        } else {
            self.run::<false>()
        }
    }
}

/// Shifts the rows of a table so that their exponentials sum to 1.
fn normalise(log_p: &mut [f64], n_rows: usize) {
    for row in 0..n_rows {
        let values = || log_p[row..].iter().step_by(n_rows);
        let highest = values().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
        let sum: f64 = values().map(|v| (v - highest).exp()).sum();
        let shift = highest + sum.ln();
        log_p[row..]
            .iter_mut()
            .step_by(n_rows)
            .for_each(|v| *v -= shift);
    }
}

/// [`Probit::expectations`] of some rows.
struct OwnClass<'a> {
    nodes: &'a Nodes,
    table: Table<'a>,
    labels: &'a [usize],
    rows: Range<usize>,
}

impl OwnClass<'_> {
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Table::differences`
    fn run<const FUSED: bool>(self) -> (Vec<f64>, Vec<f64>) {
        let (height, n_classes) = (self.rows.len(), self.table.n_classes);
        let mut targets = vec![0.0; height * n_classes];
        let mut log_probability = vec![0.0; height];
        let mut integrals = Integrals::new(self.nodes, n_classes);
        integrals.over::<FUSED>(
            self.table,
            &self.rows,
            |row| self.labels[row],
            |row, log_p, corrections| {
                let at = row - self.rows.start;
                log_probability[at] = log_p;
                // Equation (3) for the other classes; (4): what they lose, the own one gains.
                let gained: f64 = corrections.iter().sum();
                for (class, correction) in corrections.iter().enumerate() {
                    let own = class == self.labels[row];
                    let change = if own { gained } else { -correction };
                    targets[class * height + at] = self.table.at(row, class) + change;
                }
            },
        );
        (targets, log_probability)
    }
}

impl WithSimd for OwnClass<'_> {
    type Output = (Vec<f64>, Vec<f64>);

    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Table::differences`
    fn with_simd<S: Simd>(self, simd: S) -> (Vec<f64>, Vec<f64>) {
        if is_fused(simd) {
            self.run::<true>()
        } else {
            self.run::<false>()
        }
    }
}
