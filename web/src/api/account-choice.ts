/** Which of their accounts a person looks at: one per tab, remembered for the next. */
let chosen: string | undefined = sessionStorage.getItem('account') ?? localStorage.getItem('account') ?? undefined;

/** Undefined: the account that they joined first. */
export const accountId = (): string | undefined => chosen;

export function chooseAccount(id: string | undefined): void {
  lookAt(id);
  for (const storage of [sessionStorage, localStorage]) {
    if (id === undefined) storage.removeItem('account');
    else storage.setItem('account', id);
  }
}

/** Until the page is loaded again: an account that an operator views is not one of theirs. */
export const lookAt = (id: string | undefined): void => void (chosen = id);
