//! What the plots have in common: their colours on a light and on a dark page.

/// The classes of a plot, and its ground. Lines of data have colours of their own, which can be told apart on both pages.
pub const STYLE: &str = "<style>
  .ground { fill: #ffffff; }
  text { fill: #1f2328; }
  .faint { fill: #59636e; }
  .grid { stroke: #d1d9e0; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117; }
    text { fill: #e6edf3; }
    .faint { fill: #9198a1; }
    .grid { stroke: #3d444d; }
    [stroke=\"#000000\"] { stroke: #e6edf3; }
  }
</style>
<rect width=\"100%\" height=\"100%\" class=\"ground\"/>
";
