"use strict";
// Search in the prompt: an extra. Everything can be read without it.
(() => {
  const form = document.getElementById("search");
  if (!form || !window.CSS || !CSS.highlights) return;
  const [input, output] = [form.elements.text, form.querySelector("output")];
  const most = 10000;
  let [found, current] = [[], -1];

  // Each layer's text and the nodes it is made of: a match may begin in one and end in another.
  const blocks = Array.from(document.querySelectorAll("#prompt pre"), (block) => {
    const nodes = [];
    const walker = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
    for (let start = 0, node; (node = walker.nextNode()); start += node.length) {
      nodes.push({ node, start, end: start + node.length });
    }
    return { text: block.textContent, nodes };
  });

  const ranges = (text) => {
    // Where a line is broken is not what is searched for.
    const pattern = new RegExp(text.replace(/[\\^$.*+?()[\]{}|\/-]/g, "\\$&").replace(/\s+/g, "\\s+"), "gi");
    const all = [];
    for (const { text, nodes } of blocks) {
      let at = 0;
      for (const match of text.matchAll(pattern)) {
        if (all.length >= most) return all;
        const last = match.index + match[0].length;
        const range = new Range();
        while (nodes[at].end <= match.index) at++;
        range.setStart(nodes[at].node, match.index - nodes[at].start);
        while (nodes[at].end < last) at++;
        range.setEnd(nodes[at].node, last - nodes[at].start);
        all.push(range);
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
