import { ApiError } from '../../../platform/errors.ts';
import type { Part } from '../../../generation/request.ts';
import { present } from '../common-fields.ts';
import type { WireInnerBlock, WireSource, WireTextBlock } from './schema.ts';

/** Decodes a content block of a user's turn, or of a tool's result. `at` is its path in the body. */
export function decodeContentBlock(block: WireInnerBlock, at: string): readonly Part[] {
  switch (block.type) {
    case 'text':
      return textParts(present(block.text, `${at}.text`));
    case 'image':
      return [decodeImage(sourceOf(block, at), `${at}.source`)];
    case 'document':
      return decodeDocument(block, at);
    case 'search_result':
      return textParts(searchResultText(block, at));
    case 'tool_reference':
      // Every tool is offered to the model from the start, so this only names it (contracts §0.3).
      return textParts(`The tool ${present(block.tool_name, `${at}.tool_name`)} is now available.`);
    default:
      throw unknownBlock(at);
  }
}

/** Decodes blocks where only text is allowed. */
export function decodeTextBlocks(content: string | readonly WireTextBlock[], at: string): readonly Part[] {
  if (typeof content === 'string') return textParts(content);
  return content.flatMap((block, index) => {
    const path = `${at}[${index}]`;
    if (block.type !== 'text') throw unknownBlock(path);
    return textParts(present(block.text, `${path}.text`));
  });
}

/** Empty texts make no parts. */
export const textParts = (text: string): readonly Part[] =>
  text === '' ? [] : [{ type: 'text', text: text.toWellFormed() }];

export const unknownBlock = (at: string): ApiError =>
  new ApiError('unsupported_value', `'${at}.type' is not a kind of block that is allowed here.`, {
    param: `${at}.type`,
  });

function sourceOf({ source }: WireInnerBlock, at: string): WireSource {
  if (typeof source !== 'string') return present(source, `${at}.source`);
  throw new ApiError('schema_validation_failed', `'${at}.source' must be an object.`, { param: `${at}.source` });
}

function decodeImage(source: WireSource, at: string): Part {
  switch (source.type) {
    case 'base64':
      return { type: 'image-url', url: dataUriOf(source, at), at: `${at}.data` };
    case 'url':
      return { type: 'image-url', url: present(source.url, `${at}.url`), at: `${at}.url` };
    case 'file':
      return fileById(source, undefined, at);
    default:
      throw unknownSource(at);
  }
}

function decodeDocument(block: WireInnerBlock, at: string): readonly Part[] {
  const source = sourceOf(block, at);
  const path = `${at}.source`;
  const { title, context } = block;
  const heading = textParts([title ? `Document: ${title}` : '', context ?? ''].filter(Boolean).join('\n'));
  // A file's title is its name, which is shown along with its content.
  const headingOfFile = textParts(context ?? '');
  switch (source.type) {
    case 'base64': {
      const data = dataUriOf(source, path);
      const file = { type: 'file', fileId: undefined, data, filename: nameOf(title), at: `${path}.data` } as const;
      return [...headingOfFile, file];
    }
    case 'file':
      return [...headingOfFile, fileById(source, nameOf(title), path)];
    case 'text':
      return [...heading, ...textParts(present(source.data, `${path}.data`))];
    case 'content':
      return [...heading, ...decodeDocumentContent(source, path)];
    case 'url': {
      const url = present(source.url, `${path}.url`);
      const none = { fileId: undefined, data: undefined };
      return [...headingOfFile, { type: 'file', ...none, url, filename: nameOf(title), at: `${path}.url` }];
    }
    default:
      throw unknownSource(path);
  }
}

function decodeDocumentContent(source: WireSource, at: string): readonly Part[] {
  const content = present(source.content, `${at}.content`);
  if (typeof content === 'string') return textParts(content);
  return content.flatMap((piece, index) => {
    const path = `${at}.content[${index}]`;
    if (piece.type !== 'text' && piece.type !== 'image') throw unknownBlock(path);
    return decodeContentBlock(piece, path);
  });
}

const dataUriOf = (source: WireSource, at: string): string =>
  `data:${present(source.media_type, `${at}.media_type`)};base64,${present(source.data, `${at}.data`)}`;

const nameOf = (title: string | undefined | null): string | undefined => title?.toWellFormed() ?? undefined;

const fileById = (source: WireSource, filename: string | undefined, at: string): Part => ({
  type: 'file',
  fileId: present(source.file_id, `${at}.file_id`),
  data: undefined,
  filename,
  at: `${at}.file_id`,
});

const unknownSource = (at: string): ApiError =>
  new ApiError('unsupported_value', `'${at}.type' is not a source that this block can have.`, { param: `${at}.type` });

function searchResultText({ title, source, content }: WireInnerBlock, at: string): string {
  const texts = present(content, `${at}.content`).map(({ text }, index) =>
    present(text, `${at}.content[${index}].text`),
  );
  const heading = [title ?? '', typeof source === 'string' ? source : ''].filter(Boolean).join('\n');
  return [heading, ...texts].filter(Boolean).join('\n\n');
}
