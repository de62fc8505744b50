// Takes the pictures of the README: `node scripts/screenshots.mjs`. A real Chromium opens the console of a real service with a
// month of history (screenshots/demo.mjs). Pictures have a fixed size, and show what everybody sees: nothing is retouched.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { chromium } from 'playwright-core';
import { buildProgram } from './bundle.mjs';
import { unpackedPackage } from './debian-package.mjs';
import { DemoService } from './screenshots/demo.mjs';
import { root, say, setup } from './setup.mjs';
import { setup as findChromium } from '../tests/suites/browser/setup.mjs';

const pictures = path.join(root, 'docs', 'pictures');
const bytesMax = 150_000;
const weights = { Regular: '400', Medium: '500', SemiBold: '600' };
const size = { width: 1280, height: 800 };

setup();
await buildProgram();
// It builds the console too.
const { TOKENHOUSE_TEST_CHROMIUM: executablePath = process.env.TOKENHOUSE_TEST_CHROMIUM } = await findChromium();
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tokenhouse-screenshots-'));
const demo = new DemoService(folder);
try {
  await demo.live();
  say('demo     a month of requests');
  const browser = await chromium.launch({ executablePath, chromiumSandbox: false });
  try {
    for (const colorScheme of ['light', 'dark']) await photograph(browser, colorScheme);
  } finally {
    await browser.close();
  }
} finally {
  await demo.stop();
  fs.rmSync(folder, { recursive: true, force: true });
}

async function photograph(browser, colorScheme) {
  const context = await browser.newContext({
    colorScheme,
    locale: 'en-US',
    viewport: size,
    deviceScaleFactor: 2,
    reducedMotion: 'reduce',
  });
  await context.addCookies([...demo.cookies].map(([name, value]) => ({ name, value, url: demo.accountUrl })));
  const page = await context.newPage();
  await page.goto(demo.accountUrl);
  await useFont(page);
  await page.getByText('Spend of the last 30 days as a table').waitFor();
  await page.locator('[data-row]').first().waitFor();
  const picture = await webp(context, await page.screenshot());
  const name = `console-${colorScheme}.webp`;
  if (picture.length > bytesMax)
    throw new Error(`${name} has ${picture.length} bytes; at most ${bytesMax} are allowed`);
  fs.mkdirSync(pictures, { recursive: true });
  fs.writeFileSync(path.join(pictures, name), picture);
  say(`picture  docs/pictures/${name}, ${Math.ceil(picture.length / 1000)} kB`);
  await context.close();
}

/** The console uses the system font, and a server has no presentable one. */
async function useFont(page) {
  const fonts = path.join(unpackedPackage('fonts-inter'), 'usr/share/fonts/opentype/inter');
  for (const [name, weight] of Object.entries(weights)) {
    const file = fs.readFileSync(path.join(fonts, `Inter-${name}.otf`)).toString('base64');
    await page.evaluate(
      async ([base64, ofWeight]) => {
        const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
        document.fonts.add(await new FontFace('Picture', bytes, { weight: ofWeight }).load());
        document.documentElement.style.setProperty('--font', 'Picture, sans-serif');
      },
      [file, weight],
    );
  }
}

/** A third of the size of a PNG. */
async function webp(context, png) {
  const page = await context.newPage();
  const base64 = await page.evaluate(async (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const image = await createImageBitmap(new Blob([bytes], { type: 'image/png' }));
    const canvas = new OffscreenCanvas(image.width, image.height);
    canvas.getContext('2d').drawImage(image, 0, 0);
    const blob = await canvas.convertToBlob({ type: 'image/webp', quality: 0.82 });
    let binary = '';
    for (const byte of new Uint8Array(await blob.arrayBuffer())) binary += String.fromCharCode(byte);
    return btoa(binary);
  }, png.toString('base64'));
  await page.close();
  return Buffer.from(base64, 'base64');
}
