import { url, type Setting } from '../setting.ts';

/** The URL of a server that we send requests to, without credentials, which are in `secretIn`, and without a trailing slash. */
export function serverUrl(description: string, example: string, secretIn = 'api_key_env'): Setting<string | undefined> {
  const plain = url(description, example);
  return {
    ...plain,
    read: (written, at, reading) => {
      const inUse = plain.read(written, at, reading);
      if (inUse === undefined) return undefined;
      if (!URL.canParse(inUse)) reading.report(at, `not a URL; write for example ${example}`);
      else if (new URL(inUse).username !== '' || new URL(inUse).password !== '')
        reading.report(at, `a name or password in a URL ends up in logs; use ${secretIn} instead`);
      return inUse;
    },
  };
}
