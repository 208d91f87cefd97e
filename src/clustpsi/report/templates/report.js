// Draws the charts of a report: those in view at once, the others when there is time, all of them before printing.
(async () => {
  "use strict";
  const trouble = (text) => {
    const box = document.getElementById("trouble");
    box.textContent = text;
    box.hidden = false;
  };
  if (!window.DecompressionStream) {
    trouble("This browser is too old to show the charts; the tables are complete. Any browser of 2023 or later will do.");
    return;
  }
  const unpacked = async (id) => {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const [program, text] = await Promise.all([unpacked("plotly"), unpacked("charts")]);
  const script = document.createElement("script");
  script.textContent = program;
  document.head.append(script);

  const charts = JSON.parse(text);
  const { dark, config } = JSON.parse(document.getElementById("settings").textContent);
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");
  const boxes = [...document.querySelectorAll(".chart")];
  const PAPER = 680; // pixels between the margins of a sheet, whatever the window's width is
  let printing = false;

  // A copy of a chart; on a dark page each colour gives way to its counterpart.  Only values of keys that are about
  // colours are colours: a client may be called #000000.
  const copied = (value, isColour, isDark) => {
    if (Array.isArray(value)) return value.map((each) => copied(each, isColour, isDark));
    if (value && typeof value === "object") {
      return Object.fromEntries(
        Object.entries(value).map(([key, each]) => [key, copied(each, isColour || key.includes("color"), isDark)]),
      );
    }
    if (isDark && isColour && typeof value === "string" && value[0] === "#") {
      return (dark[value.slice(0, 7).toLowerCase()] || value.slice(0, 7)) + value.slice(7);
    }
    return value;
  };

  const draw = (box) => {
    const look = printing ? "print" : scheme.matches ? "dark" : "light";
    if (box.dataset.look === look) return;
    const chart = copied(charts[box.dataset.chart], false, look === "dark");
    const width = printing ? { width: PAPER } : {};
    Plotly.react(box, chart.data, { ...chart.layout, ...width }, config);
    box.dataset.look = look;
  };

  const seen = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => draw(entry.target)),
    { rootMargin: "300px" },
  );
  boxes.forEach((box) => seen.observe(box));
  const drawRest = () => {
    const box = boxes.find((each) => !each.dataset.look);
    if (box) {
      draw(box);
      setTimeout(drawRest, 0);
    } else {
      document.documentElement.dataset.ready = "yes";
    }
  };
  setTimeout(drawRest, 50);

  scheme.addEventListener("change", () => boxes.forEach(draw));
  window.addEventListener("beforeprint", () => {
    printing = true;
    boxes.forEach(draw);
  });
  window.addEventListener("afterprint", () => {
    printing = false;
    boxes.forEach(draw);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") document.activeElement?.blur();
  });
})();
