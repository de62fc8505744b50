/** The API may want proof of identity before a change (`step_up_required`): the shell shows a dialog, and the change waits. */
type Asked = (proved: boolean) => void;

let show: ((answer: Asked) => void) | undefined;

/** The dialog says where it is; returns what takes it away. */
export function offersStepUp(asks: (answer: Asked) => void): () => void {
  show = asks;
  return () => {
    if (show === asks) show = undefined;
  };
}

/** Resolves with whether the person has signed in again. */
export const proveIdentity = (): Promise<boolean> =>
  new Promise((resolve) => {
    if (show === undefined) resolve(false);
    else show(resolve);
  });
