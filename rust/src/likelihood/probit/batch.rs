//! Probabilities, expectations and curvatures for batches of rows.

use std::f64::consts::FRAC_1_SQRT_2;
use std::ops::Range;

use crate::likelihood::probit::quadrature::{
    ABSENT, Integral, LANES, Lanes, Modes, Nodes, log_cdf_curvature,
};
use crate::linalg::simd::{Simd, WithSimd, is_fused};
use crate::special::{cdf, log_cdf};
use crate::{Error, Result};

/// Differences of larger scores have lost too many digits.
const MAX_SCORE: f64 = 1e12;

/// Validated N x C scores, column-major.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table<'a> {
    scores: &'a [f64],
    pub(super) n_rows: usize,
    pub(super) n_classes: usize,
}

impl<'a> Table<'a> {
    pub(super) fn new(scores: &'a [f64], n_classes: usize) -> Result<Self> {
        let invalid = |what: &str| Err(Error::Invalid { what: what.into() });
        if n_classes < 2 {
            return invalid("scores must have two columns at least, one for each class");
        }
        let n_rows = scores.len() / n_classes;
        Error::check_len("scores", n_rows * n_classes, scores.len())?;
        Error::check_finite("scores", scores)?;
        if scores.iter().any(|score| score.abs() > MAX_SCORE) {
            return invalid(
                "scores must not exceed 1e12 in size; rescale the inputs (X) or the weights of rows (sample_weight)",
            );
        }
        Ok(Self {
            scores,
            n_rows,
            n_classes,
        })
    }

    /// [`Table::new`] that also checks the labels.
    pub(super) fn labelled(scores: &'a [f64], labels: &[usize], n_classes: usize) -> Result<Self> {
        let table = Self::new(scores, n_classes)?;
        Error::check_len("labels", table.n_rows, labels.len())?;
        match labels.iter().find(|&&label| label >= n_classes) {
            None => Ok(table),
            Some(label) => Err(Error::Invalid {
                what: format!(
                    "labels must lie below the number of classes, {n_classes}; got {label}"
                ),
            }),
        }
    }

    fn at(&self, row: usize, class: usize) -> f64 {
        self.scores[class * self.n_rows + row]
    }

    fn of(&self, rows: &Range<usize>, class: usize) -> &'a [f64] {
        &self.scores[class * self.n_rows..][rows.clone()]
    }

    /// The first class with the largest score of a row.
    fn largest(&self, row: usize) -> usize {
        (1..self.n_classes).fold(0, |top, c| {
            if self.at(row, c) > self.at(row, top) {
                c
            } else {
                top
            }
        })
    }
}

/// The requested quantity.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted<'a> {
    /// P of all classes, from one integral per row.
    Probabilities,
    /// ln P of all classes, from one integral per class.
    LogProbabilities,
    /// The means of the noisy copies given these classes, and ln P of the classes.
    Expectations(&'a [usize]),
    /// Expectations, followed by minus the second derivatives of ln P: for scores c and d <= c in column
    /// [`packed`]`(c, d)`.
    Curvatures(&'a [usize]),
}

impl Wanted<'_> {
    /// Columns of the result.
    pub(crate) fn n_columns(&self, n_classes: usize) -> usize {
        match self {
            Self::Curvatures(_) => n_classes + packed(n_classes, 0),
            _ => n_classes,
        }
    }
}

/// Index of element (c, d), d <= c, in the row-major lower triangle of a symmetric matrix.
pub(crate) fn packed(c: usize, d: usize) -> usize {
    c * (c + 1) / 2 + d
}

/// The evaluation of some rows of a table by one thread. It allocates nothing if the workspace has been used before.
pub(crate) struct Piece<'a> {
    pub(crate) nodes: &'a Nodes,
    pub(crate) table: Table<'a>,
    pub(crate) rows: Range<usize>,
    pub(crate) wanted: Wanted<'a>,
    pub(crate) workspace: &'a mut Workspace,
    /// The requested columns of these rows, column-major.
    pub(crate) out: &'a mut [f64],
    /// For expectations, ln P of each row is appended.
    pub(crate) log_probability: &'a mut Vec<f64>,
}

impl WithSimd for Piece<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if is_fused(simd) {
            self.run::<true>();
        } else {
            self.run::<false>();
        }
    }
}

impl Piece<'_> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let (table, first, height) = (self.table, self.rows.start, self.rows.len());
        let mut group = Group::new(self.nodes, table, self.workspace);
        for start in self.rows.clone().step_by(LANES) {
            let rows = start..self.rows.end.min(start + LANES);
            let to = &mut self.out[start - first..];
            match self.wanted {
                Wanted::Probabilities => {
                    group.set::<FUSED>(&rows, |row| table.largest(row));
                    group.probabilities::<FUSED>(to, height);
                }
                Wanted::LogProbabilities => {
                    for class in 0..table.n_classes {
                        group.set::<FUSED>(&rows, |_| class);
                        group.log_probabilities::<FUSED>(&mut to[class * height..]);
                    }
                }
                Wanted::Expectations(labels) | Wanted::Curvatures(labels) => {
                    let curved = matches!(self.wanted, Wanted::Curvatures(_));
                    group.set::<FUSED>(&rows, |row| labels[row]);
                    group.expectations::<FUSED>(to, height, self.log_probability, curved);
                }
            }
        }
        if matches!(self.wanted, Wanted::LogProbabilities) {
            normalise(self.out, height);
        }
    }
}

/// Up to [`LANES`] rows with a class each; their modes are found in parallel vector lanes.
struct Group<'a> {
    nodes: &'a Nodes,
    table: Table<'a>,
    rows: Range<usize>,
    own: [usize; LANES],
    modes: Modes,
    workspace: &'a mut Workspace,
}

/// Reusable memory for the integrals.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// The own score minus each score.
    differences: Vec<Lanes>,
    integral: Integral,
    /// For the last row and each other class: score minus expected copy, which is the mean hazard.
    mean_hazards: Vec<f64>,
    /// For the last row and each class: mean of minus the second derivative of ln Phi.
    mean_curvatures: Vec<f64>,
    /// Row sums of the curvature matrix.
    row_sums: Vec<f64>,
}

impl Workspace {
    fn fit(&mut self, n_classes: usize, nodes: &Nodes) {
        self.differences.resize(n_classes, [ABSENT; LANES]);
        self.integral.fit(n_classes, nodes);
        for values in [
            &mut self.mean_hazards,
            &mut self.mean_curvatures,
            &mut self.row_sums,
        ] {
            values.resize(n_classes, 0.0);
        }
    }
}

impl<'a> Group<'a> {
    fn new(nodes: &'a Nodes, table: Table<'a>, workspace: &'a mut Workspace) -> Self {
        workspace.fit(table.n_classes, nodes);
        Self {
            nodes,
            table,
            rows: 0..0,
            own: [0; LANES],
            modes: Modes::default(),
            workspace,
        }
    }

    #[inline(always)]
    fn set<const FUSED: bool>(&mut self, rows: &Range<usize>, own: impl Fn(usize) -> usize) {
        self.rows = rows.clone();
        let mut score = [0.0; LANES];
        for (l, row) in rows.clone().enumerate() {
            self.own[l] = own(row);
            score[l] = self.table.at(row, self.own[l]);
        }
        for (class, to) in self.workspace.differences.iter_mut().enumerate() {
            *to = [ABSENT; LANES];
            for (l, other) in self.table.of(rows, class).iter().enumerate() {
                to[l] = if self.own[l] == class {
                    ABSENT
                } else {
                    score[l] - other
                };
            }
        }
        if self.table.n_classes > 2 {
            self.modes = Modes::find::<FUSED>(&self.workspace.differences);
        }
    }

    /// ln P of the own class of row `l` of the group.
    #[inline(always)]
    fn integrate<const FUSED: bool>(&mut self, l: usize) -> f64 {
        match self.pair(l) {
            Some(x) => log_cdf(x),
            None => self.workspace.integral.evaluate::<FUSED>(
                self.nodes,
                &self.modes,
                l,
                &self.workspace.differences,
            ),
        }
    }

    /// For two classes, the x of the closed form P = Phi(x).
    fn pair(&self, l: usize) -> Option<f64> {
        (self.table.n_classes == 2)
            .then(|| self.workspace.differences[1 - self.own[l]][l] * FRAC_1_SQRT_2)
    }

    #[inline(always)]
    fn log_probabilities<const FUSED: bool>(&mut self, out: &mut [f64]) {
        for (l, out) in out.iter_mut().enumerate().take(self.rows.len()) {
            *out = self.integrate::<FUSED>(l);
        }
    }

    #[inline(always)]
    fn probabilities<const FUSED: bool>(&mut self, out: &mut [f64], stride: usize) {
        for l in 0..self.rows.len() {
            let (own, p) = (self.own[l], self.integrate::<FUSED>(l).exp());
            let pair = self.pair(l);
            if pair.is_none() {
                self.workspace
                    .integral
                    .divide_by_own_hazard::<FUSED>(&self.modes, l);
            }
            let mut sum = p;
            for class in (0..self.table.n_classes).filter(|&class| class != own) {
                let other = pair.map_or_else(
                    || p * self.workspace.integral.mean_hazard(class),
                    |x| log_cdf(-x).exp(),
                );
                out[class * stride + l] = other;
                sum += other;
            }
            out[own * stride + l] = p;
            out[l..]
                .iter_mut()
                .step_by(stride)
                .take(self.table.n_classes)
                .for_each(|p| *p /= sum);
        }
    }

    /// The means of the noisy copies, and minus the Hessian of ln P if `with_curvatures`.
    #[inline(always)]
    fn expectations<const FUSED: bool>(
        &mut self,
        out: &mut [f64],
        stride: usize,
        log_p: &mut Vec<f64>,
        with_curvatures: bool,
    ) {
        for l in 0..self.rows.len() {
            log_p.push(self.integrate::<FUSED>(l));
            self.means::<FUSED>(l, out, stride);
            if with_curvatures {
                let to = &mut out[self.table.n_classes * stride + l..];
                self.curvatures::<FUSED>(l, to, stride);
            }
        }
    }

    /// The means of row `l`, right after its integral: equation (3) for the other classes and (4) for the own class.
    #[inline(always)]
    fn means<const FUSED: bool>(&mut self, l: usize, out: &mut [f64], stride: usize) {
        let (own, pair, row) = (self.own[l], self.pair(l), self.rows.start + l);
        let mut sum = 0.0;
        for class in (0..self.table.n_classes).filter(|&class| class != own) {
            let mean_hazard = pair.map_or_else(
                || self.workspace.integral.mean_hazard(class),
                |x| cdf::<FUSED>(x).hazard * FRAC_1_SQRT_2,
            );
            self.workspace.mean_hazards[class] = mean_hazard;
            out[class * stride + l] = self.table.at(row, class) - mean_hazard;
            sum += mean_hazard;
        }
        out[own * stride + l] = self.table.at(row, own) + sum;
    }

    /// Minus the Hessian of ln P of row `l` in the scores, right after its means.
    ///
    /// With a_c = phi / Phi at u + f_i - f_c for the own class i and other classes c, `d ln P / d f_c = -E a_c` and
    /// `-d^2 ln P / d f_c d f_d = delta_cd E[a_c (a_c + u + f_i - f_c)] - Cov(a_c, a_d)` under the normalised integrand. As
    /// ln P depends on differences only, each row of the matrix sums to zero.
    #[inline(always)]
    fn curvatures<const FUSED: bool>(&mut self, l: usize, to: &mut [f64], stride: usize) {
        let (n, own) = (self.table.n_classes, self.own[l]);
        let at = |c: usize, d: usize| packed(c.max(d), c.min(d)) * stride;
        for c in 0..n {
            let at_mode = self.modes.at[l] + self.workspace.differences[c][l];
            self.workspace.mean_curvatures[c] = match self.pair(l) {
                Some(x) => 0.5 * log_cdf_curvature(cdf::<FUSED>(x).hazard, x),
                None => self
                    .workspace
                    .integral
                    .centre(c, self.workspace.mean_hazards[c], at_mode),
            };
        }
        let mut own_curvature = 0.0;
        self.workspace.row_sums.fill(0.0);
        for c in (0..n).filter(|&c| c != own) {
            for start in (0..=c).step_by(LANES) {
                let covariances = match self.pair(l) {
                    Some(_) => [0.0; LANES],
                    None => self.workspace.integral.covariances(c, start / LANES),
                };
                for d in (start..n.min(start + LANES)).filter(|&d| d <= c && d != own) {
                    let mean = if d == c {
                        self.workspace.mean_curvatures[c]
                    } else {
                        0.0
                    };
                    let value = mean - covariances[d - start];
                    to[at(c, d)] = value;
                    self.workspace.row_sums[c] += value;
                    if d != c {
                        self.workspace.row_sums[d] += value;
                    }
                }
            }
        }
        for c in (0..n).filter(|&c| c != own) {
            to[at(own, c)] = -self.workspace.row_sums[c];
            own_curvature += self.workspace.row_sums[c];
        }
        to[at(own, own)] = own_curvature;
    }
}

/// Shifts each row of a table so that its exponentials sum to 1.
fn normalise(log_p: &mut [f64], n_rows: usize) {
    for row in 0..n_rows {
        let values = || log_p[row..].iter().step_by(n_rows);
        let highest = values().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
        let shift = highest + values().map(|v| (v - highest).exp()).sum::<f64>().ln();
        let values = log_p[row..].iter_mut().step_by(n_rows);
        values.for_each(|v| *v -= shift);
    }
}
