"use strict";
// Zoom into a picture of coefficients. It stands in the page whole; this script moves its viewBox, names rows and columns at its edges, and
// tells the product under the pointer, whose coefficients it reads from the marks themselves.
for (const box of document.querySelectorAll(".zoom")) {
  const svg = box.querySelector("svg");
  const labels = svg.querySelector(".labels");
  const given = [...labels.childNodes];
  const labelled = labels.childElementCount > 0;
  const place = box.querySelector(".place");
  const rows = JSON.parse(svg.dataset.rows);
  const parts = JSON.parse(svg.dataset.parts); // the name of a table, its first column, the names of its columns
  const written = svg.getAttribute("viewBox");
  const [left, top, width, height] = written.split(" ").map(Number);
  const CELL = 10; // units of the picture
  const READABLE = 9; // pixels of a cell that has room for a name
  const CLOSEST = 40; // pixels of a cell
  const MOST = 14; // terms told of a sum
  const NS = "http://www.w3.org/2000/svg";
  const view = { x: left + width / 2, y: top + height / 2, scale: 0 }; // its middle, and pixels in a unit
  const pointers = new Map();
  const MANY = 20000; // marks; more are drawn on a canvas, which is faster than shapes
  const marks = [...svg.querySelectorAll("[data-value]")].map((path) => {
    let [x, y] = [0, 0];
    const places = [];
    for (const step of path.getAttribute("d").matchAll(/[Mm](-?[\d.]+) (-?\d+)h(\d+)/g)) {
      const [dx, dy, length] = step.slice(1).map(Number);
      [x, y] = [x + dx, y + dy];
      places.push([Math.floor(x / CELL), Math.floor(y / CELL)]);
      x += length;
    }
    return { value: path.dataset.value, path, places };
  });
  const canvas = marks.reduce((count, { places }) => count + places.length, 0) > MANY && document.createElement("canvas");
  let products;
  let fitted = 0; // the width of the page for which the whole was shown

  const size = () => [svg.clientWidth, svg.clientHeight];
  const least = () => Math.min(size()[0] / width, size()[1] / height);
  const inside = (middle, extent, from, length) =>
    extent >= length ? from + length / 2 : Math.min(Math.max(middle, from + extent / 2), from + length - extent / 2);
  const show = () => {
    if (!least()) return; // not laid out yet
    view.scale = Math.max(least(), Math.min(CLOSEST / CELL, view.scale));
    const [w, h] = size().map((pixels) => pixels / view.scale);
    view.x = inside(view.x, w, left, width);
    view.y = inside(view.y, h, top, height);
    const corner = [view.x - w / 2, view.y - h / 2];
    svg.setAttribute("viewBox", [...corner, w, h].join(" "));
    svg.classList.toggle("near", view.scale > least() * 1.001);
    label(corner, w, h);
    if (canvas) draw(corner);
  };
  const add = (name, attributes, text) => {
    const element = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text) element.textContent = text.length > 8 ? `${text.slice(0, 7)}…` : text;
    labels.append(element);
    return element;
  };
  const label = ([x, y], w, h) => {
    labels.replaceChildren();
    if (CELL * view.scale < READABLE) return;
    const font = Math.min(11 / view.scale, CELL * 0.85);
    const room = font * 4.8;
    const [right, down] = [Math.max(left, x), Math.max(top + 2 * CELL, y)];
    const named = (text, attributes) => (add("text", attributes, text).style.fontSize = `${font}px`);
    add("rect", { class: "edge", x: right, y: down, width: room, height: h });
    add("rect", { class: "edge", x: right, y: down, width: w, height: room });
    rows.forEach((name, row) => {
      const at = (row + 0.5) * CELL;
      if (at > down + room && at < y + h) named(name, { x: right + room - font / 2, y: at });
    });
    for (const [, first, names] of parts) {
      names.forEach((name, column) => {
        const at = (first + column + 0.5) * CELL;
        const turned = `translate(${at} ${down + room - font / 2}) rotate(-90)`;
        if (at > right + room && at < x + w) named(name, { class: "up", transform: turned });
      });
    }
  };
  const draw = ([x, y]) => {
    const ratio = devicePixelRatio;
    [canvas.width, canvas.height] = size().map((pixels) => pixels * ratio);
    const context = canvas.getContext("2d");
    const cell = CELL * view.scale * ratio;
    for (const { path, places } of marks) {
      const { stroke, strokeWidth } = getComputedStyle(path);
      const side = Math.max(0.5, (parseFloat(strokeWidth) / CELL) * cell);
      const square = path.classList.value.startsWith("p") || side < 4;
      context.fillStyle = stroke;
      for (const [column, row] of places) {
        const across = (column + 0.5) * cell - x * view.scale * ratio;
        const down = (row + 0.5) * cell - y * view.scale * ratio;
        if (across < -cell || down < -cell || across > canvas.width + cell || down > canvas.height + cell) continue;
        if (square) context.fillRect(across - side / 2, down - side / 2, side, side);
        else {
          context.beginPath();
          context.arc(across, down, side / 2, 0, 2 * Math.PI);
          context.fill();
        }
      }
    }
  };
  const read = () => {
    products = rows.map(() => []);
    for (const { value, places } of marks) for (const [x, y] of places) products[y].push([x, value]);
  };
  const sum = (terms, [, first, names]) => {
    const own = terms.filter(([x]) => x >= first && x < first + names.length);
    const told = own.slice(0, MOST).map(([x, value], number) => {
      const minus = value.startsWith("−");
      const many = minus ? value.slice(1) : value;
      return `${number ? (minus ? " − " : " + ") : minus ? "−" : ""}${many === "1" ? "" : `${many} `}${names[x - first]}`;
    });
    return told.join("") + (own.length > MOST ? ` + … (${own.length} terms)` : "");
  };
  const tell = (clientX, clientY) => {
    if (!products) read();
    const at = new DOMPoint(clientX, clientY).matrixTransform(svg.getScreenCTM().inverse());
    const [column, row] = [Math.floor(at.x / CELL), Math.floor(at.y / CELL)];
    const part = parts.find(([, first, names]) => column >= first && column < first + names.length);
    if (!part || row < 0 || row >= rows.length) return;
    const terms = products[row].sort((a, b) => a[0] - b[0]);
    const value = terms.find(([x]) => x === column)?.[1] ?? "0";
    const [u, v, w] = parts.map((each) => sum(terms, each));
    place.textContent = `${part[0]}, ${part[2][column - part[1]]}: ${value}\n${rows[row]} = (${u}) · (${v})  →  ${w}`;
  };
  const middle = () => {
    const { left: x, top: y, width: w, height: h } = svg.getBoundingClientRect();
    return [x + w / 2, y + h / 2];
  };
  const zoom = (factor, [clientX, clientY] = middle()) => {
    const before = new DOMPoint(clientX, clientY).matrixTransform(svg.getScreenCTM().inverse());
    const scale = Math.max(least(), Math.min(CLOSEST / CELL, view.scale * factor));
    view.x = before.x + ((view.x - before.x) * view.scale) / scale;
    view.y = before.y + ((view.y - before.y) * view.scale) / scale;
    view.scale = scale;
    show();
  };
  const move = (dx, dy) => {
    view.x -= dx / view.scale;
    view.y -= dy / view.scale;
    show();
  };
  const fit = () => {
    fitted = svg.clientWidth;
    const most = labelled ? Infinity : Math.max(320, innerHeight * 0.85);
    svg.style.height = `${Math.min((svg.clientWidth * height) / width, most)}px`;
    view.scale = 0;
    show();
  };
  const actions = { in: () => zoom(1.5), out: () => zoom(1 / 1.5), whole: fit };
  const STEP = 60; // pixels
  const keys = {
    "+": actions.in,
    "=": actions.in,
    "-": actions.out,
    0: actions.whole,
    ArrowLeft: () => move(STEP, 0),
    ArrowRight: () => move(-STEP, 0),
    ArrowUp: () => move(0, STEP),
    ArrowDown: () => move(0, -STEP),
  };

  for (const button of box.querySelectorAll("button")) button.addEventListener("click", actions[button.name]);
  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
    tell(...middle());
  });
  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && document.activeElement !== svg) return; // else a page could not be scrolled past the picture
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 400), [event.clientX, event.clientY]);
  }, { passive: false });
  svg.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, [event.clientX, event.clientY]);
    svg.setPointerCapture(event.pointerId);
    tell(event.clientX, event.clientY);
  });
  svg.addEventListener("pointermove", (event) => {
    const old = pointers.get(event.pointerId);
    const now = [event.clientX, event.clientY];
    if (!old) return tell(...now);
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const apart = ([x, y]) => Math.hypot(x - other[0], y - other[1]);
      zoom(apart(now) / Math.max(1, apart(old)), [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2]);
    } else move(now[0] - old[0], now[1] - old[1]);
    pointers.set(event.pointerId, now);
  });
  for (const end of ["pointerup", "pointercancel"]) svg.addEventListener(end, (event) => pointers.delete(event.pointerId));
  for (const event of ["load", "afterprint"]) addEventListener(event, fit);
  addEventListener("resize", () => svg.clientWidth !== fitted && fit()); // the bars of a browser on a phone change the height alone
  addEventListener("beforeprint", () => {
    svg.style.height = "";
    svg.setAttribute("viewBox", written);
    labels.replaceChildren(...given);
  });
  if (canvas) {
    svg.before(canvas);
    svg.classList.add("over");
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  }
  box.querySelector(".controls").hidden = false;
  fit();
}
