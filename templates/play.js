"use strict";
// Play a schedule: everything that is shown stands in the page; this script copies, marks, and moves from stage to stage.
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
  let now = 0;
  let timer = 0;

  const fill = (number, kind, value) => {
    const cell = cells[number];
    cell.dataset.kind = kind;
    cell.querySelector(".value").textContent = value;
    cell.title = `${cell.dataset.name}: ${value || "not written yet"}`;
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
    if (!plain || !(event.key in keys) || (event.key === " " && event.target.tagName === "BUTTON")) return;
    event.preventDefault();
    actions[keys[event.key]]();
  });
  slider.max = stages.length;
  play.hidden = false;
  show(0);
}
