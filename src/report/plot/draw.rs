//! Draws a figure as SVG or PNG.

use std::sync::OnceLock;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use plotters::style::register_font;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::palette;
use super::{Axis, Figure, Key, Mark};
use crate::report::units::middle;

/// Width for which the sizes of text and margins below are meant; they grow with the width.
const WIDTH: f64 = 1000.0;
/// Points of text, of the title, and pixels of margins.
const TEXT: f64 = 15.0;
const TITLE: f64 = 19.0;
const MARGIN: f64 = 14.0;
/// Pixels for the legend, for labels below and left of the axes.
const LEGEND: f64 = 190.0;
const BELOW: f64 = 52.0;
const LEFT: f64 = 100.0;
/// Characters that fit.
const TITLE_WIDTH: usize = 84;
const KEY_WIDTH: usize = 19;
/// The family of SVG files; of PNG files it is the font below.
const FAMILY: &str = "sans-serif";

type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

/// The figure as SVG of so many pixels.
///
/// # Errors
/// What the library says.
pub fn svg(figure: &Figure, size: (u32, u32)) -> Result<String, String> {
    font()?;
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
    draw(&root, figure).and_then(|()| root.present()).map_err(|e| format!("the figure cannot be drawn: {e}"))?;
    drop(root);
    Ok(titled(&text, figure))
}

/// The figure as PNG of so many pixels.
///
/// # Errors
/// What the library says.
pub fn png(figure: &Figure, (width, height): (u32, u32)) -> Result<Vec<u8>, String> {
    font()?;
    let failed = |e: String| format!("the figure cannot be drawn: {e}");
    let mut pixels = vec![0; width as usize * height as usize * 3];
    {
        let root = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
        draw(&root, figure).and_then(|()| root.present()).map_err(|e| failed(e.to_string()))?;
    }
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(&pixels)?;
        writer.finish()
    });
    written.map_err(|e| failed(e.to_string()))?;
    Ok(bytes)
}

/// The font of the text; its widths are those that SVG is laid out with.
fn font() -> Result<(), String> {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let register = || register_font(FAMILY, FontStyle::Normal, dejavu::sans::regular()).is_ok();
    if *REGISTERED.get_or_init(register) { Ok(()) } else { Err("the font of the figures cannot be read".to_owned()) }
}

/// The SVG with a title for those who do not see it.
fn titled(svg: &str, figure: &Figure) -> String {
    let title = figure.title.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    svg.replacen("<svg ", "<svg role=\"img\" ", 1).replacen(">\n", &format!(">\n<title>{title}</title>\n"), 1)
}

fn draw<B: DrawingBackend>(root: &DrawingArea<B, Shift>, figure: &Figure) -> Drawn<B> {
    let (width, _) = root.dim_in_pixel();
    let unit = f64::from(width) / WIDTH;
    let pixels = |n: f64| (n * unit).round() as i32;
    root.fill(&WHITE)?;
    let (picture, legend) = root.split_horizontally(width as i32 - pixels(LEGEND));
    let title = middle(&figure.title, TITLE_WIDTH);
    let mut chart = ChartBuilder::on(&picture)
        .margin(pixels(MARGIN))
        .margin_top(pixels(MARGIN + 2.0 * TITLE))
        .x_label_area_size(pixels(BELOW))
        .y_label_area_size(pixels(LEFT))
        .build_cartesian_2d(Scale::of(&figure.x), Scale::of(&figure.y))?;
    root.draw(&Text::new(title, (pixels(MARGIN), pixels(MARGIN)), (FAMILY, TITLE * unit)))?;
    let (x, y) = (&figure.x, &figure.y);
    let ground = Rectangle::new([(x.low, y.low), (x.high, y.high)], palette::EMPTY.filled());
    chart.draw_series(std::iter::once(ground))?;
    let cells = figure.marks.iter().filter_map(|mark| match mark {
        Mark::Cell { x, y, color } => Some(Rectangle::new([(x.0, y.0), (x.1, y.1)], color.filled())),
        Mark::Line { .. } => None,
    });
    chart.draw_series(cells)?;
    for mark in &figure.marks {
        if let Mark::Line { from, to, color, is_dashed } = mark {
            let style = color.stroke_width(pixels(2.0).max(1) as u32);
            if *is_dashed {
                let dashes = DashedLineSeries::new([*from, *to], pixels(8.0), pixels(6.0), style);
                chart.draw_series(dashes)?;
            } else {
                chart.draw_series(LineSeries::new([*from, *to], style))?;
            }
        }
    }
    let (of_x, of_y) = (|v: &f64| figure.x.label(*v), |v: &f64| figure.y.label(*v));
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc(figure.x.title.as_str())
        .y_desc(figure.y.title.as_str())
        .x_labels(figure.x.ticks.len())
        .y_labels(figure.y.ticks.len())
        .x_label_formatter(&of_x)
        .y_label_formatter(&of_y)
        .label_style((FAMILY, TEXT * unit))
        .axis_desc_style((FAMILY, TEXT * unit))
        .draw()?;
    keys(&legend, figure, unit)
}

/// An axis as plotters wants it: labels where the figure has some.
struct Scale {
    ends: (f64, f64),
    labels: Vec<f64>,
}

impl Scale {
    fn of(axis: &Axis) -> Scale {
        Scale { ends: (axis.low, axis.high), labels: axis.ticks.iter().map(|(at, _)| *at).collect() }
    }
}

impl Ranged for Scale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let (low, high) = self.ends;
        let part = if low == high { 0.5 } else { (value - low) / (high - low) };
        limit.0 + (part * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.labels.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.ends.0..self.ends.1
    }
}

/// The legend, from the top to the bottom.
fn keys<B: DrawingBackend>(area: &DrawingArea<B, Shift>, figure: &Figure, unit: f64) -> Drawn<B> {
    let pixels = |n: f64| (n * unit).round() as i32;
    let style = TextStyle::from((FAMILY, TEXT * unit).into_font()).pos(Pos::new(HPos::Left, VPos::Center));
    let (left, line) = (pixels(4.0), pixels(TEXT * 1.6));
    let mut y = pixels(MARGIN + 2.0 * TITLE) + line / 2;
    for key in &figure.keys {
        match key {
            Key::Heading(text) => area.draw_text(&middle(text, KEY_WIDTH + 3), &style, (left, y))?,
            Key::Color(color, text) => {
                let half = pixels(TEXT * 0.45);
                area.draw(&Rectangle::new([(left, y - half), (left + 2 * half, y + half)], color.filled()))?;
                area.draw_text(&middle(text, KEY_WIDTH), &style, (left + 3 * half, y))?;
            }
            Key::Scale(few, many) => {
                let (half, steps, wide) = (pixels(TEXT * 0.45), 40, pixels(LEGEND - 40.0));
                for step in 0..steps {
                    let at = |step: i32| left + wide * step / steps;
                    let color = palette::viridis(f64::from(step) / f64::from(steps - 1));
                    area.draw(&Rectangle::new([(at(step), y - half), (at(step + 1), y + half)], color.filled()))?;
                }
                y += line;
                area.draw_text(few, &style, (left, y))?;
                let right = style.pos(Pos::new(HPos::Right, VPos::Center));
                area.draw_text(many, &right, (left + wide, y))?;
            }
        }
        y += line;
    }
    Ok(())
}
