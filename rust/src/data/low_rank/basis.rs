//! The Newton basis of a kernel at all rows and centres, with as many landmarks as these ask for.

use std::ops::Range;

use crate::Points;
use crate::data::column_table::Table;
use crate::data::design::Family;
use crate::data::low_rank::features::MOST_OTHERS;
use crate::data::low_rank::pivoted_cholesky::{PivotedCholesky, Seen};
use crate::data::low_rank::policy::LowRankPolicy;
use crate::linalg::aligned_columns::AlignedColumns;
use crate::parallel::map_pieces;

/// Points at a time.
const STRIP: usize = 256;

/// Newton functions and P at some points.
pub(crate) struct At {
    pub(crate) values: Table,
    pub(crate) powers: Vec<f64>,
}

impl At {
    /// What was seen of all points.
    fn of(newton: &PivotedCholesky, points: &Points, seen: &Seen) -> Self {
        let mut values = with_room(points.n_points(), newton.len());
        (0..newton.len()).for_each(|k| values.push_pieces(seen.function(k)));
        let powers = newton.powers(points, &seen.left());
        Self { values, powers }
    }
}

/// Newton functions at all rows, and at the centres if these are others.
pub(crate) struct BasisValues {
    pub(crate) newton: PivotedCholesky,
    pub(crate) rows: At,
    pub(crate) centres: Option<At>,
}

impl BasisValues {
    /// With more landmarks where those from a sample are too few; `seen`: what they say of the sample.
    pub(crate) fn of(
        family: &Family<'_>,
        mut newton: PivotedCholesky,
        seen: Seen,
        grade: LowRankPolicy,
    ) -> Option<Self> {
        const ROUNDS: usize = 4;
        let (n, d) = (family.points.n_points(), family.points.n_features());
        let about_rows = family.is_about_its_rows();
        let centres = (!about_rows).then(|| Points::from_rows(family.centres, family.len(), d));
        // The sample may have been all there is.
        let mut seen = (about_rows && seen.n_points() == n).then_some(seen);
        for _ in 0..ROUNDS {
            let this = Self {
                rows: match seen.take() {
                    Some(seen) => At::of(&newton, family.points, &seen),
                    None => at_all(&newton, family.points),
                },
                centres: centres.as_ref().map(|centres| at_all(&newton, centres)),
                newton,
            };
            if grade.is_coarse() {
                return Some(this);
            }
            let mut far = Far::default();
            far.add(&this.newton, family.points, &this.rows, grade.tol);
            if let (Some(points), Some(at)) = (&centres, &this.centres) {
                far.add(&this.newton, points, at, grade.tol);
            }
            if far.powers.is_empty() {
                return Some(this);
            }
            newton = this.newton;
            let functions = |points: Range<usize>| {
                let function = |k| {
                    let mut here = AlignedColumns::zeros(points.len());
                    let values = far.values.iter().skip(points.start * newton.len() + k);
                    let values = values.step_by(newton.len());
                    here.iter_mut().zip(values).for_each(|(h, v)| *h = *v);
                    here
                };
                (0..newton.len()).map(function).collect()
            };
            let seen = Seen::new(&far.powers, functions);
            newton.grow(&far.points, seen, grade.tol, grade.most)?;
        }
        None
    }
}

/// Points where P is too large yet.
#[derive(Default)]
struct Far {
    /// Row by row.
    points: Vec<f64>,
    /// Newton functions, point after point.
    values: Vec<f64>,
    powers: Vec<f64>,
}

impl Far {
    fn add(&mut self, newton: &PivotedCholesky, points: &Points, at: &At, tol: f64) {
        for (i, power) in at.powers.iter().enumerate() {
            // What rounding may have added to P^2 is not for landmarks to take away.
            let square = power * power - newton.rounding() * newton.largest();
            if square > tol * newton.largest() {
                self.points
                    .extend((0..points.n_features()).map(|f| points.feature(f)[i]));
                self.values
                    .extend((0..newton.len()).map(|k| at.values.column(k)[i]));
                self.powers.push(square);
            }
        }
    }
}

/// Newton functions at all points.
fn at_all(newton: &PivotedCholesky, points: &Points) -> At {
    let n = points.n_points();
    let parts = map_pieces(n, STRIP, |rows| {
        let (mut out, height) = (Vec::new(), rows.len());
        let powers = newton.at(points, rows, height, &mut out);
        (out, powers)
    });
    let mut values = with_room(n, newton.len());
    for k in 0..newton.len() {
        let pieces = parts
            .iter()
            .map(|(part, powers)| &part[k * powers.len()..(k + 1) * powers.len()]);
        values.push_pieces(pieces);
    }
    let powers = parts.into_iter().flat_map(|(_, powers)| powers).collect();
    At { values, powers }
}

/// A table for that many functions, and for the few that are their own features.
fn with_room(n: usize, width: usize) -> Table {
    Table::with_room(n, width + MOST_OTHERS)
}
