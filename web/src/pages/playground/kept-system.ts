/**
 * The instructions that a person has chosen to keep in this browser: the one thing written in the playground that is stored, because it
 * was asked for, under the name of its owner, whom nobody else who signs in here is.
 */
const nameOf = (owner: string): string => `playground system ${owner}`;

/** undefined: they are not kept. */
export function keptSystem(owner: string): string | undefined {
  return localStorage.getItem(nameOf(owner)) ?? undefined;
}

/** undefined: they are kept no longer. Returns whether the browser did it: it may have no room. */
export function keepSystem(owner: string, text: string | undefined): boolean {
  if (text === undefined) localStorage.removeItem(nameOf(owner));
  else {
    try {
      localStorage.setItem(nameOf(owner), text);
    } catch {
      localStorage.removeItem(nameOf(owner));
      return false;
    }
  }
  return true;
}
