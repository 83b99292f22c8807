//! The best few of many scores, best first. Of equal scores the lower index comes first.

/// Indices of at most `limit` positive scores, highest first.
pub(crate) fn ranked(scores: impl Iterator<Item = (f64, usize)>, limit: usize) -> Vec<usize> {
    let scores = scores
        .filter(|&(score, _)| score > 0.0)
        // Scores equal to nine digits are ties: round-off must not choose the model.
        .map(|(score, i)| (score.to_bits() >> 22, i));
    indices(first(scores.collect(), limit))
}

/// Indices of at most `limit` products, largest absolute value first, compared exactly.
pub(crate) fn most_aligned(
    products: impl Iterator<Item = (f64, usize)>,
    limit: usize,
) -> Vec<usize> {
    // Non-negative floats are ordered like their bits.
    let sizes = products.map(|(product, i)| (product.abs().to_bits(), i));
    indices(first(sizes.collect(), limit))
}

fn indices(ranked: Vec<(u64, usize)>) -> Vec<usize> {
    ranked.into_iter().map(|(_, i)| i).collect()
}

/// At most `limit` of these keys with their indices, highest first.
pub(crate) fn first(mut ranked: Vec<(u64, usize)>, limit: usize) -> Vec<(u64, usize)> {
    let order = |a: &(u64, usize), b: &(u64, usize)| b.0.cmp(&a.0).then(a.1.cmp(&b.1));
    if ranked.len() > limit {
        ranked.select_nth_unstable_by(limit, order);
        ranked.truncate(limit);
    }
    ranked.sort_unstable_by(order);
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_ranked_and_ties_go_to_the_lowest_index() {
        let scores = [
            (2.0, 7),
            (-5.0, 1),
            (3.0, 4),
            (3.0 + 1e-12, 6),
            (0.0, 0),
            (9.0, 9),
        ];
        let of = |limit: usize| ranked(scores.into_iter(), limit);
        assert_eq!(of(10), [9, 4, 6, 7]);
        assert_eq!(of(2), [9, 4]);
        assert!(of(0).is_empty());
    }

    #[test]
    fn products_are_ranked_by_exact_absolute_value() {
        let products = [(0.5, 3), (-2.0, 8), (2.0, 5), (-2.0 - 1e-15, 9), (0.0, 1)];
        let of = |limit: usize| most_aligned(products.into_iter(), limit);
        assert_eq!(of(10), [9, 5, 8, 3, 1]);
        assert_eq!(of(2), [9, 5]);
    }
}
