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
  const PAPER = 680; // width of a printed chart in pixels, whatever the width of the window
  let printing = false;

  // A copy of a chart; on a dark page its counterpart replaces each colour.  Only values of keys about colours are
  // replaced: a client may be called #000000.
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

  // If the legend needs many lines, as on a phone, the chart grows, so that its curves keep their room.
  const ENTRY = 150; // width of a method in a legend in pixels, and the height of a line of the legend
  const LINE = 19;
  const grown = (layout, data, width) => {
    if (!layout.showlegend || layout.legend.title) return layout.height;
    const entries = data.filter((trace) => trace.showlegend !== false).length;
    return layout.height + LINE * Math.max(0, Math.ceil(entries / Math.floor(width / ENTRY)) - 2);
  };

  const draw = (box) => {
    const look = printing ? "print" : scheme.matches ? "dark" : "light";
    if (box.dataset.look === look) return;
    const { data, layout } = copied(charts[box.dataset.chart], false, look === "dark");
    const height = grown(layout, data, printing ? PAPER : box.clientWidth);
    Plotly.react(box, data, { ...layout, height, ...(printing ? { width: PAPER } : {}) }, config);
    box.dataset.look = look;
  };

  // The numbers of a chart as a table, for readers who cannot see it: made on request.
  const unescaped = (value) => new DOMParser().parseFromString(String(value ?? ""), "text/html").documentElement.textContent;
  const shown = (value) => (typeof value === "number" ? String(Number(value.toPrecision(4))) : unescaped(value));
  const row = (kind, cells) => {
    const line = document.createElement("tr");
    cells.forEach((cell, i) => {
      const field = document.createElement(kind === "head" || i === 0 ? "th" : "td");
      if (field.tagName === "TH") field.scope = kind === "head" ? "col" : "row";
      if (i > 0) field.className = "number";
      field.textContent = cell;
      line.append(field);
    });
    return line;
  };
  const rowsOf = (box, trace) => {
    if (trace.type === "heatmap") {
      const tall = trace.x.length >= trace.y.length; // the longer side becomes the rows
      const [down, across] = tall ? [trace.x, trace.y] : [trace.y, trace.x];
      const at = (i, j) => (tall ? trace.z[j][i] : trace.z[i][j]);
      const body = Array.from(down, (name, i) => [name, ...Array.from(across, (_, j) => at(i, j))]);
      return [["", ...across], ...body];
    }
    const title = (axis) => box._fullLayout[axis.replace(/^[xy]/, "$&axis")].title.text || "";
    const places = trace.text ?? trace.x;
    const head = [trace.name.startsWith("trace ") ? "" : trace.name, title(trace.xaxis), title(trace.yaxis)];
    return [head, ...Array.from(trace.x, (x, i) => [trace.text ? places[i] : "", x, trace.y[i]])];
  };
  const tell = (details) => {
    const box = boxes.find((each) => each.dataset.chart === details.dataset.of);
    draw(box);
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    box._fullData.filter((trace) => trace.hoverinfo !== "skip").forEach((trace) => {
      const table = document.createElement("table");
      const [head, ...body] = rowsOf(box, trace);
      table.createTHead().append(row("head", head.map(shown)));
      table.createTBody().append(...body.map((each) => row("body", each.map(shown))));
      scroll.append(table);
    });
    details.append(scroll);
  };
  document.querySelectorAll(".numbers").forEach((details) => {
    details.addEventListener("toggle", () => tell(details), { once: true });
  });

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
