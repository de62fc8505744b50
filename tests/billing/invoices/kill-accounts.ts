export const september = Date.UTC(2026, 8, 1);
export const october = Date.UTC(2026, 9, 1);
export const accountsOfKill = Array.from({ length: 60 }, (_, index) => `acct_${String(index).padStart(3, '0')}`);
