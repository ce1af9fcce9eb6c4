"use strict";
// Play a schedule: everything that is shown stands in the page, but for numbers that a reader types; this script copies, marks, and moves
// from stage to stage.
const POWERS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const LAMBDA = 2 ** -10;
// The value of a form as the page writes it, such as "2·A11 − (1 + √3) A12": in the grammar, what stands side by side is multiplied.
const valueOf = (text, known) => {
  const tokens = text.match(/[A-Za-z_]\w*'?(\[[\d,]+\])?|[αβλ][⁻⁰¹²³⁴⁵⁶⁷⁸⁹]*|\d+|[-+−·√()/]/g) ?? [];
  let at = 0;
  const greek = (token) => {
    const digits = [...token.slice(1)].filter((sign) => sign !== "⁻").map((sign) => POWERS.indexOf(sign));
    const power = digits.length ? Number(digits.join("")) : 1;
    return { α: 1, β: 0, λ: LAMBDA }[token[0]] ** (token.includes("⁻") ? -power : power);
  };
  const factor = () => {
    const token = tokens[at++];
    if (token === "√") return Math.sqrt(factor());
    if (token === "(") {
      const inner = sum();
      at++;
      return inner;
    }
    return /^\d/.test(token) ? Number(token) : /^[αβλ]/.test(token) ? greek(token) : (known.get(token) ?? NaN);
  };
  const term = () => {
    let value = factor();
    while (at < tokens.length && !"+−-)".includes(tokens[at])) {
      const operator = "·/".includes(tokens[at]) ? tokens[at++] : "·";
      value = operator === "/" ? value / factor() : value * factor();
    }
    return value;
  };
  const sum = () => {
    let value = 0;
    while (at < tokens.length && tokens[at] !== ")") {
      let sign = 1;
      while ("+−-".includes(tokens[at])) sign *= tokens[at++] === "+" ? 1 : -1;
      value += sign * term();
    }
    return value;
  };
  return tokens.length ? sum() : NaN;
};
for (const play of document.querySelectorAll(".play")) {
  const cells = [...play.querySelectorAll("[data-cell]")];
  const given = cells.map((cell) => [cell.dataset.kind, cell.querySelector(".value").textContent]);
  const stages = [...document.getElementById(play.dataset.stages).tBodies];
  const changes = stages.map((stage) =>
    [...stage.querySelectorAll("[data-block]")].map((change) => [change.dataset.block, [change.dataset.kind, change.textContent]]),
  );
  const [told, place, slider] = [".told", ".place", "input"].map((what) => play.querySelector(what));
  const buttons = Object.fromEntries([...play.querySelectorAll("button")].map((button) => [button.name, button]));
  const SECONDS = 2;
  const MOST = 12; // steps told at once
  const fields = [...play.querySelectorAll(".numbers input")];
  const known = new Map(); // the numbers of the reader, by the names of blocks, and those of the products
  let now = 0;
  let timer = 0;

  const shown = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(7))).replace("-", "−") : "");
  const rows = (name) => [...play.querySelectorAll(".board")].find((board) => board.caption.textContent === name).rows;
  const read = () => {
    known.clear();
    const typed = fields.map((field) => field.value.split(";").map((row) => row.trim().split(/[\s,]+/).map((word) => Number(word || NaN))));
    const wrong = fields.find((field, i) => {
      const wanted = rows(field.name);
      const fits = typed[i].length === wanted.length && typed[i].every((row, r) => row.length === wanted[r].cells.length && row.every(Number.isFinite));
      field.setAttribute("aria-invalid", !fits);
      return !fits;
    });
    const told = play.querySelector(".product");
    if (wrong) {
      const wanted = rows(wrong.name);
      told.textContent = `${wrong.name} takes ${wanted.length} x ${wanted[0].cells.length} numbers.`;
      return;
    }
    fields.forEach((field, i) => typed[i].forEach((row, r) => row.forEach((value, c) => known.set(rows(field.name)[r].cells[c].dataset.name, value))));
    for (const row of rows("C")) for (const cell of row.cells) known.set(cell.dataset.name, 0);
    for (const product of stages.flatMap((stage) => [...stage.querySelectorAll(".meaning")])) {
      const [name, factors] = product.textContent.split(" = ");
      known.set(name, valueOf(factors, known));
    }
    const [a, b] = typed;
    const product = a.map((row) => b[0].map((_, j) => shown(row.reduce((sum, value, k) => sum + value * b[k][j], 0))).join(" "));
    told.textContent = `A B is ${product.join("; ")}`;
  };

  const fill = (number, kind, value) => {
    const cell = cells[number];
    cell.dataset.kind = kind;
    cell.querySelector(".value").textContent = value;
    cell.title = `${cell.dataset.name}: ${value || "not written yet"}`;
    cell.querySelector(".number").textContent = known.size && value && kind !== "undefined" ? shown(valueOf(value, known)) : "";
  };
  const mark = (numbers, css, word) => {
    for (const number of numbers.split(" ").filter(Boolean)) {
      const cell = cells[number];
      const shown = cell.querySelector(".mark");
      cell.classList.add(css);
      if (!shown.textContent.split(", ").includes(word)) shown.textContent += (shown.textContent && ", ") + word;
    }
  };
  const words = (step) => {
    const meaning = step.querySelector(".meaning");
    return meaning ? `${step.dataset.text},  ${meaning.textContent}` : step.dataset.text;
  };
  const listed = (steps) => {
    const rest = steps.length - MOST;
    const lines = steps.slice(0, MOST).map(words);
    return [...lines, ...(rest > 0 ? [`and ${rest} more, in the table below`] : [])].join("\n");
  };
  const show = (stage) => {
    now = Math.max(0, Math.min(stages.length, stage));
    const held = [...given];
    for (const [number, change] of changes.slice(0, now).flat()) held[number] = change;
    held.forEach(([kind, value], number) => fill(number, kind, value));
    for (const cell of cells) {
      cell.classList.remove("read", "multiplied", "written");
      cell.querySelector(".mark").textContent = "";
    }
    stages.forEach((stage, number) => stage.classList.toggle("now", number === now - 1));
    tell(stages[now - 1]);
  };
  const tell = (stage) => {
    const steps = stage ? [...stage.querySelectorAll("[data-writes]")] : [];
    for (const step of steps) {
      const { dataset } = step;
      const left = step.querySelector("[data-block]")?.dataset.kind === "restored" ? "restored" : "changed";
      mark(dataset.reads, dataset.product ? "multiplied" : "read", dataset.product ? `× ${dataset.product}` : "read");
      mark(dataset.writes, "written", dataset.product ? `+ ${dataset.product}` : left);
    }
    place.textContent = `Stage ${now} of ${stages.length}${stage ? `: ${stage.dataset.kind}` : ""}`;
    told.textContent = stage ? listed(steps) : "Before the first stage: A, B and C are as the caller gave them.";
    slider.value = now;
    slider.setAttribute("aria-valuetext", place.textContent);
    for (const name of ["first", "back"]) buttons[name].setAttribute("aria-disabled", now === 0); // disabled ones would lose the focus
    for (const name of ["next", "last"]) buttons[name].setAttribute("aria-disabled", now === stages.length);
  };
  const pause = () => {
    clearInterval(timer);
    timer = 0;
    told.setAttribute("aria-live", "polite");
    buttons.play.textContent = "▶ play";
  };
  const start = () => {
    told.setAttribute("aria-live", "off");
    buttons.play.textContent = "❚❚ pause";
    show(now === stages.length ? 0 : now + 1);
    timer = setInterval(() => (now === stages.length ? pause() : show(now + 1)), SECONDS * 1000);
  };
  const step = (stage) => {
    pause();
    show(stage);
  };
  const actions = {
    first: () => step(0),
    back: () => step(now - 1),
    play: () => (timer ? pause() : start()),
    next: () => step(now + 1),
    last: () => step(stages.length),
  };
  const keys = { Home: "first", ArrowLeft: "back", " ": "play", ArrowRight: "next", End: "last" };

  for (const [name, button] of Object.entries(buttons)) button.addEventListener("click", actions[name]);
  slider.addEventListener("input", () => step(Number(slider.value)));
  play.addEventListener("keydown", (event) => {
    const plain = !(event.ctrlKey || event.altKey || event.metaKey || event.shiftKey);
    if (!plain || !(event.key in keys) || event.target.type === "text" || (event.key === " " && event.target.tagName === "BUTTON")) return;
    event.preventDefault();
    actions[keys[event.key]]();
  });
  for (const field of fields) {
    let next = field.name === "A" ? 1 : 5;
    field.value = [...rows(field.name)].map((row) => [...row.cells].map(() => next++).join(" ")).join("; ");
    field.addEventListener("input", () => {
      read();
      show(now);
    });
  }
  if (fields.length) read();
  slider.max = stages.length;
  play.hidden = false;
  show(0);
}
