import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Model } from '../../../src/catalog/model.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import type { Part, Prompt } from '../../../src/generation/request.ts';
import { imagesMax } from '../../../src/inference/pipeline/request-images.ts';
import { resolveParts } from '../../../src/inference/pipeline/resolve.ts';
import { dataUri, pngOf } from '../../support/image-files.ts';
import { defaultImageRules } from '../../support/image-settings.ts';
import { capableModel } from './models.ts';

const blind: Model = { ...capableModel, capabilities: { ...capableModel.capabilities, vision: false } };
const at = 'messages[0].content[1].image_url.url';
const text: Part = { type: 'text', text: 'x' };
const image = (url: string): Part => ({ type: 'image-url', url, at });
const file: Part = {
  type: 'file',
  fileId: 'file-1',
  data: undefined,
  filename: undefined,
  at: 'messages[0].content[0].file',
};
const says = (...content: readonly Part[]): Prompt => ({ type: 'messages', messages: [{ role: 'user', content }] });
const resolve = (prompt: Prompt, model: Model): Promise<Prompt> =>
  resolveParts(prompt, model.capabilities.vision, defaultImageRules, new AbortController().signal);

test('§4.2.4(5): a model without vision never sees an image, whatever its address', async () => {
  for (const url of [
    'https://example.com/a.png',
    'http://127.0.0.1/',
    'file:///etc/passwd',
    'data:image/png;base64,AA',
    '',
    'x',
  ]) {
    assert.deepEqual(await resolve(says(text, image(url), text), blind), says(text, text));
  }
  assert.deepEqual(await resolve(says(image('https://example.com/a.png')), blind), says());
});

test('images in results of tools are removed too, and the rest of the message stays', async () => {
  const prompt: Prompt = {
    type: 'messages',
    messages: [
      { role: 'assistant', content: [image('x')], reasoning: [{ text: 'r', signature: undefined }], toolCalls: [] },
      { role: 'tool', toolCallId: 'c', content: [image('x'), text] },
    ],
  };
  assert.deepEqual(await resolve(prompt, blind), {
    type: 'messages',
    messages: [
      { role: 'assistant', content: [], reasoning: [{ text: 'r', signature: undefined }], toolCalls: [] },
      { role: 'tool', toolCallId: 'c', content: [text] },
    ],
  });
});

test('what cannot be resolved is refused by the name of its field, not dropped in silence', async () => {
  const refused = (prompt: Prompt, model: Model, param: string): Promise<void> =>
    assert.rejects(
      resolve(prompt, model),
      (error) => error instanceof ApiError && error.code === 'unsupported_value' && error.param === param,
    );
  await refused(says(file), blind, 'messages[0].content[0].file');
  await refused(says(text, image('http://example.com/a.png')), capableModel, at);
  await refused(says(text, image('data:image/png;base64,AA')), capableModel, at);
  const png = image(dataUri('image/png', pngOf(1, 1)));
  await refused(says(...new Array<Part>(imagesMax + 1).fill(png)), capableModel, at);
});

test('§4.2.4(1): on a model with vision a data URI becomes the image, and a URL stays for later', async () => {
  const bytes = pngOf(640, 480);
  const url = image('https://example.com/a.png');
  const resolved = await resolve(says(text, image(dataUri('image/png', bytes)), url), capableModel);
  const base64 = bytes.toString('base64');
  const size = { width: 640, height: 480 };
  assert.deepEqual(resolved, says(text, { type: 'image', mediaType: 'image/png', base64, size, at }, url));
});

test('a prompt of text alone is passed on as it is', async () => {
  for (const prompt of [
    says(text, text),
    { type: 'token-ids', prompts: [[1]] },
    { type: 'texts', prompts: ['x'] },
  ] as const) {
    assert.equal(await resolve(prompt, blind), prompt);
  }
});
