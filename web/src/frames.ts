// A frame from the server: JSON, then vehicles as words. The server's frames.py says the same.

export const ROW_WORDS = 5;
export const UNKNOWN = 0xffff;

export type Row = Record<string, unknown>;
export type Changes = Record<string, Row | null>;

export interface Frame {
  at: number;
  whole: boolean;
  tables: Record<string, Changes>;
  gone: number[];
  names: Record<string, string>;
  vehicles: Int32Array;
}

/** The frame in some bytes. */
export function frameFrom(data: ArrayBuffer): Frame {
  const length = new DataView(data).getUint32(0, true);
  const said = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length))) as Omit<Frame, "vehicles">;
  return { ...said, vehicles: new Int32Array(data, 4 + length) };
}
