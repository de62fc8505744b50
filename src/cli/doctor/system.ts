import { execFile } from 'node:child_process';
import { existsSync, statSync } from 'node:fs';
import path from 'node:path';

import type { ListenConfig } from '../../config/config.ts';
import { publicUrl } from '../../config/public-url.ts';
import { bytesInWords } from '../amount.ts';
import type { Finding, Patient } from './finding.ts';
import { openFilesMin, openFilesWanted } from '../open-files.ts';
import { folderFault, freeBytesOf, quoted } from '../folder.ts';
import { freePortNear, portHolder, tryPort } from '../port.ts';

export function lookAtNode(nodeVersion: string): Finding {
  const [major = 0, minor = 0] = nodeVersion.split('.').map(Number);
  const found = nodeVersion;
  if (major < 20 || (major === 20 && minor < 19)) {
    return {
      check: 'node',
      state: 'problem',
      found,
      why: 'Node 20.19 or later is required',
      repair: 'nvm install 24',
    };
  }
  if (major > 20) return { check: 'node', state: 'ok', found };
  return {
    check: 'node',
    state: 'warning',
    found,
    why: 'Node 20 is past its end of life and gets no security fixes',
    repair: 'nvm install 24',
  };
}

/** A request takes a socket, and another if its backend is a server. */
export async function lookAtOpenFiles(): Promise<readonly Finding[]> {
  if (process.platform === 'win32') return [];
  const text = await new Promise<string>((resolve) => {
    // Node raises its own limit to the hard one, and a child inherits that: a service here would have the same.
    execFile('sh', ['-c', 'ulimit -n'], { timeout: 10_000 }, (error, stdout) => resolve(error === null ? stdout : ''));
  });
  const limit = text.trim() === 'unlimited' ? Infinity : Number(text.trim() || Number.NaN);
  if (Number.isNaN(limit)) return [];
  const found = `${limit === Infinity ? 'unlimited' : limit}`;
  if (limit >= openFilesWanted) return [{ check: 'open files', state: 'ok', found }];
  return [
    {
      check: 'open files',
      state: limit < openFilesMin ? 'problem' : 'warning',
      found,
      why: `a request needs one or two; beyond the limit connections are refused`,
      repair: `ulimit -Hn ${openFilesWanted} && npm start`,
    },
  ];
}

/** No release is older; an earlier clock makes expired keys valid again. */
const earliestMs = Date.UTC(2026, 0, 1);
const slackMs = 60_000;

/** `newestAt`: the latest time in the database. */
export function lookAtClock(nowMs: number, newestAt: number | undefined): Finding {
  const found = new Date(nowMs).toISOString();
  const repair = 'sudo timedatectl set-ntp true';
  if (nowMs < earliestMs) {
    const why = 'it is before the first release; expiry of keys and dates of requests depend on it';
    return { check: 'clock', state: 'problem', found, why, repair };
  }
  if (newestAt !== undefined && nowMs < newestAt - slackMs) {
    const why = `the newest request in the database ended at ${new Date(newestAt).toISOString()}, which is later`;
    return { check: 'clock', state: 'problem', found, why, repair };
  }
  return { check: 'clock', state: 'ok', found };
}

const freeBytesWanted = 1e9;

export function lookAtFolders({ config, environment }: Patient): readonly Finding[] {
  const { directory } = config.storage;
  const secretFile = path.join(directory, 'secret');
  return [
    lookAtFolder('data', directory, 'accounts, keys and the ledger are kept there'),
    lookAtFolder('model folder', environment.modelDirectory, 'model files are downloaded into it'),
    ...(environment.secret === undefined && existsSync(secretFile) ? [lookAtSecret(secretFile)] : []),
  ];
}

function lookAtFolder(check: string, folder: string, use: string): Finding {
  const fault = folderFault(folder);
  const at = quoted(fault?.at ?? folder);
  switch (fault?.kind) {
    case 'not-writable':
      return {
        check,
        state: 'problem',
        found: `this user cannot write to ${folder}`,
        why: use,
        repair: `sudo chown -R "$(id -un)" ${at}`,
      };
    case 'read-only':
      return {
        check,
        state: 'problem',
        found: `${folder} is on a read-only file system`,
        why: use,
        repair: `findmnt -T ${at}`,
      };
    case 'full':
      return { check, state: 'problem', found: `${folder}: the disk is full`, why: use, repair: `df -h ${at}` };
    case undefined: {
      const freeBytes = freeBytesOf(folder);
      const there = existsSync(folder) ? '' : ' (will be created)';
      const found = `${folder}${there} · ${bytesInWords(freeBytes)} free`;
      if (freeBytes >= freeBytesWanted) return { check, state: 'ok', found };
      const why = `less than ${bytesInWords(freeBytesWanted)} is free, and ${use}`;
      return { check, state: 'warning', found, why, repair: `df -h ${at}` };
    }
  }
}

function lookAtSecret(file: string): Finding {
  const mode = statSync(file).mode & 0o777;
  if (process.platform === 'win32' || (mode & 0o077) === 0) return { check: 'secret', state: 'ok', found: file };
  return {
    check: 'secret',
    state: 'problem',
    found: `${file} has mode ${mode.toString(8)}`,
    why: 'anyone who reads it can forge API keys',
    repair: `chmod 600 ${quoted(file)}`,
  };
}

const publicUrlTimeoutMs = 5_000;

export async function lookAtPorts({ config, status }: Patient): Promise<readonly Finding[]> {
  const { inference, account } = config.server;
  const running = status !== undefined;
  return [
    await lookAtPort('port', '--port', inference, running),
    await lookAtPort('account port', '--account-port', account, running),
    ...(running && inference.publicUrl !== undefined ? [await lookAtPublicUrl(publicUrl(inference))] : []),
  ];
}

async function lookAtPort(check: string, option: string, listen: ListenConfig, running: boolean): Promise<Finding> {
  const { host, port } = listen;
  if (port === 0) return { check, state: 'ok', found: 'any free one' };
  const code = await tryPort(port, host);
  if (code === undefined) return { check, state: 'ok', found: `${host}:${port} is free` };
  const holder = portHolder(port);
  if (code === 'EADDRINUSE' && running)
    return { check, state: 'ok', found: `${host}:${port} is in use, and the service is running` };
  if (code === 'EADDRINUSE') {
    return {
      check,
      state: 'problem',
      found: `${host}:${port} is taken`,
      why: `${holder ?? 'another program'} listens there`,
      repair: `tokenhouse serve ${option} ${await freePortNear(port, host)}`,
    };
  }
  return {
    check,
    state: 'problem',
    found: `${host}:${port} cannot be listened on (${code})`,
    why: code === 'EACCES' ? 'ports below 1024 belong to the administrator' : 'this computer has no such address',
    repair: `tokenhouse serve ${option} ${await freePortNear(8080, '127.0.0.1')}`,
  };
}

async function lookAtPublicUrl(url: string): Promise<Finding> {
  const check = 'public url';
  try {
    const answer = await fetch(`${url}/healthz`, { signal: AbortSignal.timeout(publicUrlTimeoutMs) });
    await answer.body?.cancel();
    if (answer.ok) return { check, state: 'ok', found: url };
    return {
      check,
      state: 'warning',
      found: `${url} answers ${answer.status}`,
      why: 'the proxy in front of the service does not forward requests to it',
      repair: `curl -i ${url}/healthz`,
    };
  } catch {
    return {
      check,
      state: 'warning',
      found: `${url} cannot be reached from here`,
      why: 'errors and answers contain this address, so clients use it',
      repair: `curl -i ${url}/healthz`,
    };
  }
}
