"use strict";
// Search in the prompt: an extra. Everything can be read without it.
(() => {
  const form = document.getElementById("search");
  if (!form || !window.CSS || !CSS.highlights) return;
  const [input, output] = [form.elements.text, form.querySelector("output")];
  const most = 10000;
  let [found, current] = [[], -1];

  const ranges = (text) => {
    const pattern = new RegExp(text.replace(/[\\^$.*+?()[\]{}|\/-]/g, "\\$&"), "gi");
    const all = [];
    for (const block of document.querySelectorAll("#prompt pre")) {
      const walker = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
      while (walker.nextNode() && all.length < most) {
        for (const match of walker.currentNode.data.matchAll(pattern)) {
          const range = new Range();
          range.setStart(walker.currentNode, match.index);
          range.setEnd(walker.currentNode, match.index + match[0].length);
          if (all.push(range) >= most) break;
        }
      }
    }
    return all;
  };

  const show = () => {
    CSS.highlights.set("found", new Highlight(...found));
    CSS.highlights.delete("current");
    output.value = input.value === "" ? "" : `${found.length}${found.length >= most ? " or more" : ""} found`;
    if (current < 0) return;
    const range = found[current];
    const highlight = new Highlight(range);
    highlight.priority = 1;
    CSS.highlights.set("current", highlight);
    output.value = `${current + 1} of ${output.value}`;
    range.startContainer.parentElement.closest("details").open = true;
    const { top } = range.getBoundingClientRect();
    scrollBy({ top: top - innerHeight / 3 });
  };

  input.addEventListener("input", () => {
    found = input.value === "" ? [] : ranges(input.value);
    current = -1;
    show();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (found.length === 0) return;
    current = (current + 1) % found.length;
    show();
  });
  form.hidden = false;
})();
