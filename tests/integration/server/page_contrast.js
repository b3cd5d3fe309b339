// The contrast of each visible text to its background. WCAG 2.2: 4.5, or 3 for large text.
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const colour = (text) => {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = text;
  canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
};
const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
const light = (c) => {
  const [r, g, b] = c.slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  const layers = [];
  for (let at = element; at; at = at.parentElement) {
    if (at.namespaceURI.endsWith("svg") && at !== element) {
      const shape = at.tagName === "g" && at.querySelector(":scope > rect, :scope > path, :scope > circle");
      if (shape) layers.push(colour(getComputedStyle(shape).fill));
    }
    layers.push(colour(getComputedStyle(at).backgroundColor));
    if (layers.at(-1)[3] === 1 || layers.at(-2)?.[3] === 1) break;
  }
  return layers.reduceRight((under, top) => over(top, under), [255, 255, 255, 1]);
};
const bad = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  const text = walker.currentNode.data.trim();
  if (!text || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
  if (element.closest("title, style, script, option, .unseen, .skip")) continue;
  const style = getComputedStyle(element);
  const svg = element.namespaceURI.endsWith("svg");
  const ground = behind(element);
  const ink = over(colour(svg ? style.fill : style.color), ground);
  const [one, other] = [light(ink), light(ground)].sort((a, b) => b - a);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  const ratio = (one + 0.05) / (other + 0.05);
  if (ratio < (large ? 3 : 4.5)) bad.push(`${text.slice(0, 40)}: ${ratio.toFixed(2)} (${style.color} on ${ground.map(Math.round)})`);
}
return bad;
