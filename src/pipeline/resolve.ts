import type { Model } from '../catalog/model.ts';
import { ApiError } from '../errors.ts';
import type { Message, Part, Prompt } from '../generation/request.ts';

/**
 * Turns the parts that a dialect leaves unresolved into content. On a model without vision images are removed before any
 * check and are never fetched (specification §4.2.4(5), contracts decision 18).
 */
export function resolveParts(prompt: Prompt, model: Model): Prompt {
  if (
    prompt.type !== 'messages' ||
    !prompt.messages.some((message) => message.content.some((part) => part.type !== 'text'))
  )
    return prompt;
  return { type: 'messages', messages: prompt.messages.map((message) => resolveMessage(message, model)) };
}

function resolveMessage(message: Message, model: Model): Message {
  return { ...message, content: message.content.filter((part) => keep(part, model)) };
}

function keep(part: Part, model: Model): boolean {
  switch (part.type) {
    case 'text':
      return true;
    case 'image-url':
      if (model.capabilities.vision)
        throw new ApiError('unsupported_value', 'Images are not supported here.', { param: part.at });
      return false;
    case 'file':
      throw new ApiError(
        'unsupported_value',
        'File parts are not supported; send the text of the file as a text part.',
        { param: part.at },
      );
  }
}
