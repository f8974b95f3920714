// What of a page lies beyond the edge of the screen, is cut off, or lies on something else; a line each.
() => {
  const found = [];
  const isSeen = (element) =>
    element.checkVisibility({ visibilityProperty: true }) && !element.closest(".unseen, .skip, thead");
  const name = (element) => `${element.tagName} ${element.className}: ${element.textContent.slice(0, 40)}`;
  const scrolls = (element) =>
    element && (["auto", "scroll"].includes(getComputedStyle(element).overflowX) || scrolls(element.parentElement));
  if (document.documentElement.scrollWidth > innerWidth) found.push(`the page is ${document.documentElement.scrollWidth} wide`);
  const open = document.querySelector("dialog[open]");
  for (const region of open ? [open] : document.querySelectorAll(".top, main, .timebar, .notice")) {
    const seen = [...region.querySelectorAll("*")].filter(isSeen);
    for (const element of seen) {
      const box = element.getBoundingClientRect();
      const isBeyond = box.width && (box.left < -0.5 || box.right > innerWidth + 0.5);
      if (isBeyond && !scrolls(element.parentElement)) found.push(`beyond the edge: ${name(element)}`);
      const style = getComputedStyle(element);
      const cuts = ["hidden", "clip"].includes(style.overflowX) && style.textOverflow !== "ellipsis";
      if (cuts && element.scrollWidth > element.clientWidth + 1) found.push(`cut off: ${name(element)}`);
    }
    const used = seen.filter((element) => element.matches("a, button, input, select, summary, h1, h2, h3, dt, dd, code"));
    const boxes = used.map((element) => [element, element.getBoundingClientRect()]);
    boxes.forEach(([one, a], index) => boxes.slice(index + 1).forEach(([other, b]) => {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      const isApart = across <= 1 || down <= 1 || one.contains(other) || other.contains(one);
      if (!isApart) found.push(`overlap: ${name(one)} | ${name(other)}`);
    }));
  }
  return found.slice(0, 10);
}
