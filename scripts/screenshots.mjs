// Takes the pictures of the documentation: `node scripts/screenshots.mjs [word…]`, all of them or those whose names have a word. A real
// Chromium opens the console of a real service with weeks of history (screenshots/demo.mjs) and does what is in the table of pictures
// (screenshots/pictures.mjs). Pictures show what everybody sees: nothing is retouched.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { chromium } from 'playwright-core';
import { buildProgram } from './bundle.mjs';
import { buildConsole } from './console.mjs';
import { unpackedPackage } from './debian-package.mjs';
import { DemoService } from './screenshots/demo.mjs';
import { pictures } from './screenshots/pictures.mjs';
import { root, say, setup } from './setup.mjs';
import { chromiumProgram } from '../tests/suites/browser/setup.mjs';

const folderOfPictures = path.join(root, 'docs', 'pictures');
const weights = { Regular: '400', Medium: '500', SemiBold: '600' };
/** Better first: the first that is small enough is taken. */
const qualities = [0.82, 0.7, 0.55];

setup();
await buildProgram();
await buildConsole();
const executablePath = chromiumProgram();
const words = process.argv.slice(2);
const wanted = pictures.filter(({ name }) => words.length === 0 || words.some((word) => name.includes(word)));
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tokenhouse-screenshots-'));
const demo = new DemoService(folder);
try {
  await demo.live();
  say('demo     weeks of requests');
  const browser = await chromium.launch({ executablePath, chromiumSandbox: false });
  try {
    for (const picture of wanted) await photograph(browser, picture);
  } finally {
    await browser.close();
  }
} finally {
  await demo.stop();
  fs.rmSync(folder, { recursive: true, force: true });
}

async function photograph(browser, { name, by, at, theme, size, scale, bytesMax, steps }) {
  const context = await browser.newContext({
    colorScheme: theme,
    locale: 'en-US',
    viewport: size,
    deviceScaleFactor: scale,
    reducedMotion: 'reduce',
  });
  context.setDefaultTimeout(20_000);
  await context.addCookies([...demo[by]].map(([cookie, value]) => ({ name: cookie, value, url: demo.accountUrl })));
  await useFont(context);
  const page = await context.newPage();
  await page.goto(demo.accountUrl + at);
  const shown = await steps(page, demo);
  await page.waitForFunction(() => document.fonts.check('16px Picture') && document.fonts.status === 'loaded');
  const file = `docs/pictures/${name}.webp`;
  const picture = await webp(context, await page.screenshot(await partOf(shown)), bytesMax);
  if (picture === undefined) throw new Error(`${file} has more than ${bytesMax} bytes in every quality: show less`);
  fs.mkdirSync(folderOfPictures, { recursive: true });
  fs.writeFileSync(path.join(root, file), picture);
  say(`picture  ${file}, ${Math.ceil(picture.length / 1000)} kB`);
  await context.close();
}

/** Whole pixels inside of the element, so that nothing is seen of what is behind it; the window without one. */
async function partOf(shown) {
  if (shown === undefined) return {};
  const { x, y, width, height } = await shown.boundingBox();
  return { clip: { x: Math.ceil(x), y: Math.ceil(y), width: Math.floor(width) - 1, height: Math.floor(height) - 1 } };
}

/** Pages use the system font, and a server has no presentable one. */
async function useFont(context) {
  const fonts = path.join(unpackedPackage('fonts-inter'), 'usr/share/fonts/opentype/inter');
  const files = Object.entries(weights).map(([name, weight]) => [
    fs.readFileSync(path.join(fonts, `Inter-${name}.otf`)).toString('base64'),
    weight,
  ]);
  await context.addInitScript((loaded) => {
    for (const [base64, weight] of loaded) {
      const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
      document.fonts.add(new FontFace('Picture', bytes, { weight }));
    }
    document.addEventListener('DOMContentLoaded', () => {
      document.documentElement.style.setProperty('--font', 'Picture, sans-serif');
      document.body.style.fontFamily = 'Picture, sans-serif';
    });
  }, files);
}

/** A third of the size of a PNG. Undefined: it is too large in every quality. */
async function webp(context, png, bytesMax) {
  for (const quality of qualities) {
    const picture = await encoded(context, png, quality);
    if (picture.length <= bytesMax) return picture;
  }
  return undefined;
}

async function encoded(context, png, quality) {
  const page = await context.newPage();
  const base64 = await page.evaluate(
    async ([text, asked]) => {
      const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
      const image = await createImageBitmap(new Blob([bytes], { type: 'image/png' }));
      const canvas = new OffscreenCanvas(image.width, image.height);
      canvas.getContext('2d').drawImage(image, 0, 0);
      const blob = await canvas.convertToBlob({ type: 'image/webp', quality: asked });
      let binary = '';
      for (const byte of new Uint8Array(await blob.arrayBuffer())) binary += String.fromCharCode(byte);
      return btoa(binary);
    },
    [png.toString('base64'), quality],
  );
  await page.close();
  return Buffer.from(base64, 'base64');
}
