// What the page does without asking the server: sliders, colours, the address.
window.dash_clientside = Object.assign({}, window.dash_clientside, {
  explorer: {
    logarithm: (position, value) => synchronized(position, value, (x) => Number((10 ** x).toPrecision(2)), Math.log10),
    wholeLogarithm: (position, value) => synchronized(position, value, (x) => Math.round(10 ** x), Math.log10),
    plain: (position, value) => synchronized(position, value, (x) => x, (x) => x),

    // Which controls to show: a table with clients of its own needs none for the partition.
    visible: (partitioner, dataset, label, client) => {
      const table = (dataset || "").startsWith("table:");
      const natural = partitioner === "natural";
      return [partitioner !== "dirichlet", partitioner !== "similarity", natural, table && (!label || !!client), !table];
    },

    theme: (clicks) => {
      const root = document.documentElement;
      if (clicks) {
        root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
        remember(root.dataset.theme);
      } else {
        const system = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
        root.dataset.theme = remembered() || system;
      }
      return [root.dataset.theme, root.dataset.theme === "dark" ? "Light colours" : "Dark colours"];
    },

    page: (name) => {
      // Charts that were hidden have no width until they are asked to resize.
      setTimeout(() => window.dispatchEvent(new Event("resize")), 50);
      return [name !== "explore", name !== "paper"];
    },

    // No entry in the browser's history for every move of a slider.
    writeAddress: (settings, page, ...paper) => {
      if (!settings) return window.dash_clientside.no_update;
      const more = new URLSearchParams();
      if (page === "paper") {
        more.set("page", "paper");
        ["dataset", "clients", "level", "score", "methods"].forEach((name, i) => {
          const value = Array.isArray(paper[i]) ? paper[i].join(",") : paper[i];
          if (value) more.set(`paper_${name}`, value);
        });
      }
      const query = [settings, more.toString()].filter(Boolean).join("&");
      window.history.replaceState(null, "", `${window.location.pathname}?${query}`);
      return query;
    },
  },
});

const PAUSE = 120; // milliseconds for which a slider must rest until the charts follow
const positions = {};

// A number and its slider: whichever moved sets the other.
async function synchronized(position, value, toValue, toPosition) {
  const { no_update, callback_context } = window.dash_clientside;
  const moved = callback_context.triggered.map((each) => each.prop_id);
  if (moved.length === 1 && moved[0].endsWith("-slide.value") && position !== null && position !== undefined) {
    const slider = moved[0];
    positions[slider] = position;
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    return [no_update, positions[slider] === position ? toValue(Number(position)) : no_update];
  }
  const place = typeof value === "number" ? toPosition(value) : NaN;
  // A slider moves to its middle if it is told to go nowhere, and would take the number along.
  return [Number.isFinite(place) ? place : no_update, no_update];
}

function remember(theme) {
  try {
    window.localStorage.setItem("clustpsi-theme", theme);
  } catch (error) {
    // The browser stores nothing.
  }
}

function remembered() {
  try {
    return window.localStorage.getItem("clustpsi-theme");
  } catch (error) {
    return null;
  }
}

// What the page says of the address is true until a control is touched.
["pointerdown", "keydown"].forEach((name) => document.addEventListener(name, (event) => {
  if (event.target.closest && event.target.closest(".controls, .control, .pages, #paper")) {
    window.dash_clientside.set_props("address-message", { children: null });
  }
}, true));

// The page refuses a file that is too large without a message, so show one.
function checkSize(files) {
  const limit = 50_000_000;
  const large = Array.from(files || []).find((file) => file.size > limit);
  const text = large ? `The file is larger than ${limit / 1e6} MB: use clustpsi diagnose or clustpsi run.` : "";
  window.dash_clientside.set_props("table-message", { children: text });
}

document.addEventListener("drop", (event) => {
  if (event.target.closest && event.target.closest("#upload, .upload")) checkSize(event.dataTransfer.files);
}, true);
document.addEventListener("change", (event) => {
  if (event.target.type === "file") checkSize(event.target.files);
}, true);
// A file that is dropped beside its place must not replace the page.
["dragover", "drop"].forEach((name) => window.addEventListener(name, (event) => event.preventDefault()));
document.addEventListener("submit", (event) => event.preventDefault());
