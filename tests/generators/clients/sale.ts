// The invoice of the sample clients, and what they share.

export const LIMIT_SECONDS = 60;

export function check(condition: unknown, found: unknown): asserts condition {
  if (!condition) throw new Error(JSON.stringify(found));
}

export function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 200));
}

/** Run a client, and end the process with 1 if it fails. */
export function start(run: () => Promise<void>): void {
  run().catch((error) => {
    console.error(error);
    process.exit(1);
  });
}

export const invoice = {
  type: "INVOICE" as const,
  code: Number(process.env.CODE),
  issueDateTime: new Date().toISOString(),
  buyer: {
    type: "LOCAL_INDIVIDUAL",
    name: "Aminah binti Salleh",
    registration: { type: "NRIC", number: "900101105566" },
    contactNumber: "+60123456789",
    address: { line1: "5 Jalan Dahlia", city: "Shah Alam", state: "10", zipCode: "40150", country: "MYS" },
  },
  lineItems: [
    {
      id: "1",
      description: "Coffee beans, 1 kg",
      classifications: ["022"],
      unit: { code: "KGM", price: 48.5, count: 2 },
      taxDetails: [{ taxType: "02", taxRate: { percentage: 8 } }],
      originCountry: "MYS",
    },
  ],
};
