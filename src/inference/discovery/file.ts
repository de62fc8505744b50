import { readFile, stat } from 'node:fs/promises';
import { parse } from 'yaml';
import type { FileDiscovery } from '../../config/config.ts';
import type { Discovered } from '../../config/discovered.ts';
import { serverUrlOf } from '../../platform/outbound/server-url.ts';
import { problemOf, SourceError, type RunningSource, type SourceReader } from './source.ts';

const fileBytesMax = 1024 * 1024;

export interface FileSourceServices {
  /** Calls `onChange` when the file has changed and settled; see `config/watch.ts`. */
  readonly watch: (file: string, onChange: () => void) => { close(): void };
}

/** Reads the file now and after each change. A file with any error changes nothing. */
export function openFile(
  { path }: FileDiscovery,
  { listed, failed }: SourceReader,
  { watch }: FileSourceServices,
): RunningSource {
  let isClosed = false;
  let isReading = false;
  let again = false;
  const read = async (): Promise<void> => {
    again = isReading;
    if (isReading) return;
    isReading = true;
    try {
      const servers = serversIn(await textOf(path));
      if (!isClosed) listed(servers);
    } catch (error) {
      if (!isClosed) failed(problemOf(error, 'the file cannot be read'));
    }
    isReading = false;
    // The file changed while it was being read.
    if (again && !isClosed) void read();
  };
  const watched = watch(path, () => void read());
  void read();
  return {
    close: () => {
      isClosed = true;
      watched.close();
    },
  };
}

async function textOf(path: string): Promise<string> {
  const { size } = await stat(path);
  if (size > fileBytesMax) throw new SourceError(`the file has ${size} bytes, more than ${fileBytesMax}`);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(await readFile(path));
  } catch (error) {
    if ((error as { readonly code?: string }).code !== 'ERR_ENCODING_INVALID_ENCODED_DATA') throw error;
    throw new SourceError('the file is not UTF-8 text');
  }
}

/** The servers that a text names: a list of URLs, or of groups with `url`, `weight` and `rank`. Throws `SourceError`. */
export function serversIn(text: string): readonly Discovered[] {
  const value = parsed(text);
  // `[]` means that there are no servers; an empty file is one that is about to be written.
  if (value === null || value === undefined)
    throw new SourceError('the file is empty; write [] where there are no servers');
  if (!Array.isArray(value)) throw new SourceError('the file is not a list of URLs');
  return value.map((entry: unknown, index) => serverOf(entry, `entry ${index + 1}`));
}

function parsed(text: string): unknown {
  try {
    return parse(text, { maxAliasCount: 0, logLevel: 'error' });
  } catch (error) {
    const [line] = (error as { readonly linePos?: readonly { readonly line: number }[] }).linePos ?? [];
    throw new SourceError(`the file is not valid YAML or JSON${line === undefined ? '' : ` at line ${line.line}`}`);
  }
}

function serverOf(entry: unknown, where: string): Discovered {
  if (typeof entry === 'string') return { url: checkedUrl(entry, where) };
  if (typeof entry !== 'object' || entry === null || Array.isArray(entry))
    throw new SourceError(`${where} is neither a URL nor a group with url`);
  const { url, weight, rank, ...others } = entry as Readonly<Record<string, unknown>>;
  if (Object.keys(others).length > 0) throw new SourceError(`${where} has more than url, weight and rank`);
  if (weight !== undefined && !(typeof weight === 'number' && weight >= 0.01 && weight <= 100))
    throw new SourceError(`${where}: weight must be a number from 0.01 to 100`);
  if (rank !== undefined && !(Number.isInteger(rank) && (rank as number) >= 1 && (rank as number) <= 100))
    throw new SourceError(`${where}: rank must be a whole number from 1 to 100`);
  return {
    url: checkedUrl(url, where),
    ...(weight === undefined ? {} : { weight: weight as number }),
    ...(rank === undefined ? {} : { rank: rank as number }),
  };
}

function checkedUrl(text: unknown, where: string): string {
  const checked = serverUrlOf(text);
  if ('problem' in checked) throw new SourceError(`${where}: ${checked.problem}`);
  return checked.url;
}
