//! Colours that tell apart with any colour vision; `base.js` of the page has the same.

use plotters::style::RGBColor;

/// Viridis (Smith and van der Walt, CC0): even in brightness.
const VIRIDIS: [(u8, u8, u8); 9] = [
    (68, 1, 84),
    (71, 44, 122),
    (59, 81, 139),
    (44, 113, 142),
    (33, 144, 141),
    (39, 173, 129),
    (92, 200, 99),
    (170, 220, 50),
    (253, 231, 37),
];
/// Okabe and Ito, 2008.
const OKABE: [(u8, u8, u8); 8] = [
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (213, 94, 0),
    (240, 228, 66),
    (120, 120, 120),
];
/// Where there is nothing.
pub(super) const EMPTY: RGBColor = RGBColor(243, 244, 246);
/// Pages of one thread, of several, and what is compared with.
pub(super) const OWN: usize = 2;
/// See [`OWN`].
pub(super) const SHARED: usize = 5;

/// From dark to bright, for 0 to 1.
pub(super) fn viridis(x: f64) -> RGBColor {
    let at = x.clamp(0.0, 1.0) * (VIRIDIS.len() - 1) as f64;
    let low = (at as usize).min(VIRIDIS.len() - 2);
    let color = |(r, g, b)| RGBColor(r, g, b);
    mix(color(VIRIDIS[low]), color(VIRIDIS[low + 1]), at - low as f64)
}

/// One of eight.
pub(super) fn okabe(index: usize) -> RGBColor {
    let (r, g, b) = OKABE[index % OKABE.len()];
    RGBColor(r, g, b)
}

/// Of `many` in an order; neighbours have near colours where there are more than eight.
pub(super) fn of(index: usize, many: usize) -> RGBColor {
    if many <= OKABE.len() { okabe(index) } else { viridis(index as f64 / (many - 1) as f64) }
}

/// A part of the way from one colour to another.
pub(super) fn mix(from: RGBColor, to: RGBColor, part: f64) -> RGBColor {
    let one = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * part).round() as u8;
    RGBColor(one(from.0, to.0), one(from.1, to.1), one(from.2, to.2))
}
