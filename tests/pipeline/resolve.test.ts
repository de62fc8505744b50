import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Model } from '../../src/catalog/model.ts';
import { ApiError } from '../../src/errors.ts';
import type { Part, Prompt } from '../../src/generation/request.ts';
import { resolveParts } from '../../src/pipeline/resolve.ts';
import { capableModel } from './models.ts';

const blind: Model = { ...capableModel, capabilities: { ...capableModel.capabilities, vision: false } };
const text: Part = { type: 'text', text: 'x' };
const image = (url: string): Part => ({ type: 'image-url', url, at: 'messages[0].content[1].image_url.url' });
const file: Part = {
  type: 'file',
  fileId: 'file-1',
  data: undefined,
  filename: undefined,
  at: 'messages[0].content[0].file',
};
const says = (...content: readonly Part[]): Prompt => ({ type: 'messages', messages: [{ role: 'user', content }] });

test('§4.2.4(5): a model without vision never sees an image, whatever its address', () => {
  for (const url of [
    'https://example.com/a.png',
    'http://127.0.0.1/',
    'file:///etc/passwd',
    'data:image/png;base64,AA',
    '',
    'x',
  ]) {
    assert.deepEqual(resolveParts(says(text, image(url), text), blind), says(text, text));
  }
  assert.deepEqual(resolveParts(says(image('https://example.com/a.png')), blind), says());
});

test('images in results of tools are removed too, and the rest of the message stays', () => {
  const prompt: Prompt = {
    type: 'messages',
    messages: [
      { role: 'assistant', content: [image('x')], reasoning: [{ text: 'r', seal: undefined }], toolCalls: [] },
      { role: 'tool', toolCallId: 'c', content: [image('x'), text] },
    ],
  };
  assert.deepEqual(resolveParts(prompt, blind), {
    type: 'messages',
    messages: [
      { role: 'assistant', content: [], reasoning: [{ text: 'r', seal: undefined }], toolCalls: [] },
      { role: 'tool', toolCallId: 'c', content: [text] },
    ],
  });
});

test('what nothing can resolve yet is refused by the name of its field, not dropped in silence', () => {
  const refused = (prompt: Prompt, model: Model, param: string): void => {
    assert.throws(
      () => resolveParts(prompt, model),
      (error) => error instanceof ApiError && error.code === 'unsupported_value' && error.param === param,
    );
  };
  refused(says(file), blind, 'messages[0].content[0].file');
  refused(says(text, image('https://example.com/a.png')), capableModel, 'messages[0].content[1].image_url.url');
});

test('a prompt of text alone is passed on as it is', () => {
  for (const prompt of [
    says(text, text),
    { type: 'token-ids', prompts: [[1]] },
    { type: 'texts', prompts: ['x'] },
  ] as const) {
    assert.equal(resolveParts(prompt, blind), prompt);
  }
});
