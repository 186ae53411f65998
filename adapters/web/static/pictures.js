/* Says what a part of a picture is when it is pointed at, tapped or reached with the keyboard. Without this file the
   browser shows the same words as tooltips. */
(() => {
  "use strict";
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.addEventListener("DOMContentLoaded", () => { document.body.append(tip); prepare(document); });
  document.addEventListener("htmx:load", (event) => prepare(event.target));

  const marks = (picture) => [...picture.querySelectorAll(".mark")];

  /* The words move from tooltips to labels: a browser would show its own tooltip beside ours. One part of each picture
     is in the order of the Tab key, the arrow keys go on from there. */
  function prepare(root) {
    for (const picture of root.querySelectorAll("svg.picture:not([data-ready])")) {
      picture.dataset.ready = "";
      const title = picture.querySelector(":scope > title");
      if (title) {
        picture.setAttribute("aria-label", title.textContent);
        const described = (picture.getAttribute("aria-labelledby") || "").split(" ")[1];
        picture.removeAttribute("aria-labelledby");
        if (described) picture.setAttribute("aria-describedby", described);
        title.remove();
      }
      marks(picture).forEach((mark, index) => {
        const words = mark.querySelector(":scope > title");
        if (!words) return;
        mark.dataset.says = words.textContent;
        mark.setAttribute("aria-label", words.textContent);
        mark.setAttribute("role", "img");
        mark.setAttribute("tabindex", index === 0 ? "0" : "-1");
        words.remove();
      });
    }
  }

  function say(mark, x, y) {
    tip.textContent = mark.dataset.says;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 4));
    const below = y + 18 + box.height < innerHeight;
    tip.style.left = `${left}px`;
    tip.style.top = `${below ? y + 18 : Math.max(4, y - box.height - 12)}px`;
  }
  const hide = () => { tip.hidden = true; };
  const of = (event) => event.target instanceof Element ? event.target.closest(".mark[data-says]") : null;

  for (const kind of ["pointermove", "pointerdown"]) {
    document.addEventListener(kind, (event) => {
      const mark = of(event);
      if (mark) say(mark, event.clientX, event.clientY); else hide();
    });
  }
  document.addEventListener("focusin", (event) => {
    const mark = of(event);
    if (!mark) { hide(); return; }
    const box = mark.getBoundingClientRect();
    say(mark, box.left + box.width / 2, box.top + box.height / 2);
  });
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, true);

  const WAYS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { hide(); return; }
    const mark = of(event);
    const way = WAYS[event.key];
    if (!mark || !way || event.altKey || event.ctrlKey || event.metaKey) return;
    const middle = (element) => {
      const box = element.getBoundingClientRect();
      return [box.left + box.width / 2, box.top + box.height / 2];
    };
    const [x, y] = middle(mark);
    let nearest = null, least = Infinity;
    for (const other of marks(mark.closest("svg"))) {
      if (other === mark || !other.dataset.says) continue;
      const [ox, oy] = middle(other);
      const ahead = (ox - x) * way[0] + (oy - y) * way[1];
      const aside = Math.abs((ox - x) * way[1]) + Math.abs((oy - y) * way[0]);
      const far = ahead + 2 * aside;
      if (ahead > 0.5 && aside <= 2 * ahead && far < least) { nearest = other; least = far; }
    }
    if (!nearest) return;
    event.preventDefault();
    mark.setAttribute("tabindex", "-1");
    nearest.setAttribute("tabindex", "0");
    nearest.focus();
  });
})();
