import type { Message, Part } from '../../generation/request.ts';

/**
 * Moves images from tool results into the user's turn after them, in the order of the results: OpenAI and most templates accept only text
 * in results. Returns the same list if there are none.
 */
export function imagesBehindResults(messages: readonly Message[]): readonly Message[] {
  if (!messages.some(hasImages)) return messages;
  const moved: Message[] = [];
  let images: Part[] = [];
  for (const message of messages) {
    if (message.role === 'tool') {
      for (const part of message.content) if (isImage(part)) images.push(part);
      moved.push(
        hasImages(message) ? { ...message, content: message.content.filter((part) => !isImage(part)) } : message,
      );
      continue;
    }
    if (images.length > 0 && message.role === 'user')
      moved.push({ ...message, content: [...images, ...message.content] });
    else {
      if (images.length > 0) moved.push({ role: 'user', content: images });
      moved.push(message);
    }
    images = [];
  }
  if (images.length > 0) moved.push({ role: 'user', content: images });
  return moved;
}

const hasImages = ({ role, content }: Message): boolean => role === 'tool' && content.some(isImage);

const isImage = ({ type }: Part): boolean => type === 'image' || type === 'image-url';
