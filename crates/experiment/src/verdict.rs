//! Whether a ratio that was measured, or modelled, is the one that was published.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_advise::result::Ratio;

use crate::description::Order;

/// How far from 1 a ratio must be to have an order, as a share.
///
/// Lower: the noise of a published figure, which has no interval, gets an order. Higher: the 10 % that one document
/// names as a gain has none.
pub const ORDER: f64 = 0.03;
/// How near a modelled ratio must be to the published one to have the same factor, as a share of it.
pub const MODEL_FACTOR: f64 = 0.2;

/// What a comparison shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The published factor is in the measured interval; of a model, within [`MODEL_FACTOR`].
    SameFactor,
    /// Faster where it was published as faster, slower where as slower; by another factor.
    SameOrder,
    /// Another order.
    Differs,
    /// Neither: the interval includes both orders.
    NotShown,
    /// Nothing was published to compare with.
    Unpublished,
    /// Neither measured nor modelled.
    NotMeasured,
}

fn order(ratio: f64) -> Order {
    if ratio > 1.0 + ORDER {
        Order::Faster
    } else if ratio < 1.0 - ORDER {
        Order::Slower
    } else {
        Order::Equal
    }
}

impl Verdict {
    /// Of a ratio measured here.
    #[must_use]
    pub fn of_measured(published: Option<f64>, measured: &Ratio) -> Self {
        match published {
            None => Self::Unpublished,
            Some(published) if (measured.low..=measured.high).contains(&published) => {
                // An interval that is so wide that it has both orders has no factor.
                let both = (order(measured.low), order(measured.high)) == (Order::Slower, Order::Faster);
                if both { Self::NotShown } else { Self::SameFactor }
            }
            Some(published) => Self::of_order(order(published), measured),
        }
    }

    /// Of a ratio measured here, where the document gives an order and no figure.
    #[must_use]
    pub fn of_order(wanted: Order, measured: &Ratio) -> Self {
        let (low, high) = (order(measured.low), order(measured.high));
        if order(measured.ratio) == wanted && (low == wanted || high == wanted) {
            // Part of the interval may touch 1; none of it may be of the opposite order.
            let opposite = matches!(
                (wanted, low, high),
                (Order::Faster, Order::Slower, _) | (Order::Slower, _, Order::Faster)
            );
            return if opposite { Self::NotShown } else { Self::SameOrder };
        }
        if low == high { Self::Differs } else { Self::NotShown }
    }

    /// Of a ratio of the model.
    #[must_use]
    pub fn of_modelled(published: Option<f64>, modelled: f64) -> Self {
        let Some(published) = published else { return Self::Unpublished };
        if (modelled / published - 1.0).abs() <= MODEL_FACTOR {
            Self::SameFactor
        } else if order(modelled) == order(published) {
            Self::SameOrder
        } else {
            Self::Differs
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(ratio: f64, low: f64, high: f64) -> Ratio {
        Ratio { ratio, low, high }
    }

    #[test]
    fn the_published_factor_in_the_interval_is_the_same_factor() {
        assert_eq!(Verdict::of_measured(Some(1.5), &measured(1.4, 1.3, 1.6)), Verdict::SameFactor);
        assert_eq!(Verdict::of_measured(Some(0.06), &measured(0.5, 0.45, 0.55)), Verdict::SameOrder);
        assert_eq!(Verdict::of_measured(Some(9.0), &measured(1.4, 1.3, 1.6)), Verdict::SameOrder);
        assert_eq!(Verdict::of_measured(None, &measured(1.4, 1.3, 1.6)), Verdict::Unpublished);
    }

    #[test]
    fn another_order_differs_and_an_interval_of_both_orders_shows_nothing() {
        assert_eq!(Verdict::of_measured(Some(1.5), &measured(0.8, 0.7, 0.9)), Verdict::Differs);
        assert_eq!(Verdict::of_measured(Some(1.5), &measured(1.0, 0.99, 1.01)), Verdict::Differs);
        assert_eq!(Verdict::of_measured(Some(3.0), &measured(1.1, 0.8, 1.4)), Verdict::NotShown);
        assert_eq!(Verdict::of_measured(Some(3.0), &measured(1.1, 0.99, 1.2)), Verdict::SameOrder);
    }

    #[test]
    fn an_interval_of_both_orders_has_no_factor() {
        assert_eq!(Verdict::of_measured(Some(2.5), &measured(0.5, 0.03, 4.0)), Verdict::NotShown);
        assert_eq!(Verdict::of_measured(Some(1.1), &measured(1.05, 0.98, 1.12)), Verdict::SameFactor);
    }

    #[test]
    fn an_order_without_a_figure_is_compared_as_an_order() {
        let slower = measured(0.9, 0.85, 0.95);
        assert_eq!(Verdict::of_order(Order::Slower, &slower), Verdict::SameOrder);
        assert_eq!(Verdict::of_order(Order::Faster, &slower), Verdict::Differs);
        assert_eq!(Verdict::of_order(Order::Slower, &measured(0.98, 0.9, 1.06)), Verdict::NotShown);
        assert_eq!(Verdict::of_order(Order::Equal, &measured(1.0, 0.99, 1.01)), Verdict::SameOrder);
    }

    #[test]
    fn a_model_has_the_same_factor_within_a_fifth() {
        assert_eq!(Verdict::of_modelled(Some(2.0), 2.39), Verdict::SameFactor);
        assert_eq!(Verdict::of_modelled(Some(2.0), 2.41), Verdict::SameOrder);
        assert_eq!(Verdict::of_modelled(Some(2.0), 0.9), Verdict::Differs);
        assert_eq!(Verdict::of_modelled(None, 0.9), Verdict::Unpublished);
    }
}
