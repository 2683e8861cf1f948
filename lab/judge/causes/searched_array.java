// case: an array that is searched for each key, by Java
// run: SearchedArray
// finds: SearchedArray.
// Looks for each key from the begin of an array, instead of in a map.
class SearchedArray {
    static int find(int[] keys, int key) {
        for (int index = 0; index < keys.length; index++) {
            if (keys[index] == key) return index;
        }
        return -1;
    }

    public static void main(String[] arguments) {
        int[] keys = new int[3000];
        for (int index = 0; index < keys.length; index++) keys[index] = index * 7919 % 3000;
        long sum = 0;
        for (int round = 0; round < 30; round++) {
            for (int key = 0; key < keys.length; key++) sum += find(keys, key);
        }
        System.out.println(sum);
    }
}
